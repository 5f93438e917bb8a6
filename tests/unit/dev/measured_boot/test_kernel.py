"""What firmware measures of a kernel, computed from its file."""

import hashlib

from dev.measured_boot.kernel import as_loaded, authenticode

HEADER = 0x40
OPTIONAL = HEADER + 24
DIRECTORY = OPTIONAL + 112 + 4 * 8


def program(*, signature: bytes = b"") -> bytes:
    """Return a program of EFI, as small as one can be, with a signature at its end."""
    content = bytearray(range(256)) * 4
    content[0x3C:0x40] = HEADER.to_bytes(4, "little")
    content[OPTIONAL : OPTIONAL + 2] = b"\x0b\x02"
    place = len(content).to_bytes(4, "little") + len(signature).to_bytes(4, "little")
    content[DIRECTORY : DIRECTORY + 8] = place
    return bytes(content) + signature


def test_neither_signature_nor_checksum_is_measured() -> None:
    plain = program()
    expected = plain[: OPTIONAL + 64] + plain[OPTIONAL + 68 : DIRECTORY] + plain[DIRECTORY + 8 :]
    assert authenticode(plain) == hashlib.sha256(expected).hexdigest()
    assert authenticode(program(signature=b"s" * 16)) == authenticode(plain)
    checked = bytearray(plain)
    checked[OPTIONAL + 64] ^= 1
    assert authenticode(bytes(checked)) == authenticode(plain)


def test_every_other_byte_is_measured() -> None:
    plain = program(signature=b"s" * 16)
    for at in (0, OPTIONAL + 63, OPTIONAL + 68, DIRECTORY + 8, 1023):
        changed = bytearray(plain)
        changed[at] ^= 0x80
        assert authenticode(bytes(changed)) != authenticode(plain), at


def test_a_program_whose_length_is_no_multiple_of_eight_is_filled_up() -> None:
    plain = program()
    assert authenticode(plain + b"x") == authenticode(plain + b"x" + b"\0" * 7)


def test_the_place_of_the_initial_file_system_is_in_the_header() -> None:
    kernel = bytes(1024)
    loaded = as_loaded(kernel, initrd_size=0x1234, memory=512 << 20)
    assert len(loaded) == len(kernel)
    assert int.from_bytes(loaded[0x21C:0x220], "little") == 0x1234
    place = int.from_bytes(loaded[0x218:0x21C], "little")
    assert place % 4096 == 0
    assert place + 0x1234 < 512 << 20
    assert as_loaded(kernel, initrd_size=0x2345, memory=512 << 20) != loaded
