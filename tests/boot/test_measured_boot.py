"""A real machine under QEMU: OVMF and the kernel measure into swtpm, and its quote is verified."""

import json
from dataclasses import replace

from dev.measured_boot.documents import CONFIG, Documents
from dev.measured_boot.evidence import registers_of
from dev.measured_boot.machine import Machine
from dev.measured_boot.workshop import ATTESTATION, MEASURED_BOOT, STAGES, Workshop

MEASUREMENT, LAUNCH, FRESHNESS = 26, 22, 24
"""Exit codes of ``cloister-verify``."""
OTHER = CONFIG.replace('"8080", -h', '"8080", -v, -h')
"""The same file with another argument."""


def test_it_runs_the_container_and_its_evidence_is_verified(
    workshop: Workshop, documents: Documents, machine: Machine
) -> None:
    assert machine.get("/") == b"from inside a machine with a measured boot\n"
    stages = {each["name"]: each for each in json.loads(machine.get(STAGES))["stages"]}
    assert stages["cpu-attestation"]["status"] == "ok"
    assert "nothing is confidential" in stages["cpu-attestation"]["detail"]

    code, verdict = workshop.verify(machine, documents.digest)
    assert code == MEASURED_BOOT, verdict
    assert not verdict["verified"]
    assert "not confidential" in verdict["failure"]["problem"]
    assert verdict["insecure"]

    boot = next(each["compared"] for each in verdict["steps"] if each["step"] == "boot")
    code, _ = workshop.verify(machine, documents.digest, "--same-boot", boot)
    assert code == MEASURED_BOOT
    resets, restarts, clock = boot.split(",")
    code, verdict = workshop.verify(
        machine, documents.digest, "--same-boot", f"{int(resets) + 1},{restarts},{clock}"
    )
    assert (code, verdict["failure"]["step"]) == (FRESHNESS, "same boot")


def test_a_machine_for_another_file_differs_in_one_register(
    workshop: Workshop, documents: Documents, machine: Machine
) -> None:
    first = registers_of(machine.get(ATTESTATION))
    other = Documents.make(config=OTHER)
    assert workshop.verify(machine, other.digest)[0] == MEASUREMENT
    machine.stop()
    with workshop.boot(other) as second:
        second.await_boot()
        found = registers_of(second.get(ATTESTATION))
        assert {name for name in first if first[name] != found[name]} == {"9"}
        assert workshop.verify(second, other.digest)[0] == MEASURED_BOOT
        assert workshop.verify(second, documents.digest)[0] == MEASUREMENT


def test_documents_of_another_enclave_do_not_boot(workshop: Workshop, documents: Documents) -> None:
    other = Documents.make(config=OTHER)
    with workshop.boot(other, measurement=documents.digest) as machine:
        machine.await_end()
        assert "not what was measured" in machine.console
        assert "the machine was started for another enclave" in machine.console


def test_a_changed_document_does_not_boot(workshop: Workshop, documents: Documents) -> None:
    path = "etc/cloister-agent/agent.json"
    changed = documents.files[path].replace(b'"bindsKey":true', b'"bindsKey":false')
    assert changed != documents.files[path]
    with workshop.boot(replace(documents, files=documents.files | {path: changed})) as machine:
        machine.await_end()
        assert "not what was measured: agent.json" in machine.console


def test_another_initial_file_system_is_refused(
    workshop: Workshop, documents: Documents, machine: Machine
) -> None:
    machine.stop()
    changed = workshop.folder / "changed"
    # Of the same length, since the kernel's header has that and the firmware measures the header.
    content = workshop.initrd.read_bytes()
    page = b"from inside a machine with a measured boot"
    assert content.count(page) >= 1
    changed.write_bytes(content.replace(page, page.replace(b"from", b"FROM")))
    with workshop.boot(documents, initrd=changed) as other:
        other.await_boot()
        assert other.get("/").startswith(b"FROM inside")
        code, verdict = workshop.verify(other, documents.digest)
    assert (code, verdict["failure"]["step"]) == (LAUNCH, "initrd")
