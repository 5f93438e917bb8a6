# Cloister's rules for the agent of Kata's guests: which requests of the host it carries out.
#
# The fields are those of Kata Containers 4.1.0 (agent.proto, oci.proto, and the agent's own form of
# CopyFileRequest), and of later ones without driver options of image_guest_pull. What is not
# admitted here is refused. `cloister_pod` is appended to this text for each enclave;
# docs/measurement.md describes it. Rego of version 0 and 1, as regorus and OPA read it.
package agent_policy

import future.keywords.every
import future.keywords.if
import future.keywords.in

default AllowRequestsFailingPolicy := false

# What neither starts nor changes anything, or only ends it: the host can end the machine anyway.
default DestroySandboxRequest := true
default GetOOMEventRequest := true
default GuestDetailsRequest := true
default OnlineCPUMemRequest := true
default RemoveStaleVirtiofsShareMountsRequest := true
default SignalProcessRequest := true
default StatsContainerRequest := true
default WaitProcessRequest := true

# What the rules below decide about.
default AddARPNeighborsRequest := false
default CopyFileRequest := false
default CreateContainerRequest := false
default CreateSandboxRequest := false
default ExecProcessRequest := false
default ReadStreamRequest := false
default RemoveContainerRequest := false
default StartContainerRequest := false
default UpdateInterfaceRequest := false
default UpdateRoutesRequest := false

# What no enclave needs.
default AddSwapPathRequest := false
default AddSwapRequest := false
default CloseStdinRequest := false
default GetDiagnosticDataRequest := false
default GetIPTablesRequest := false
default GetMetricsRequest := false
default ListInterfacesRequest := false
default ListRoutesRequest := false
default MemAgentCompactConfig := false
default MemAgentMemcgConfig := false
default MemHotplugByProbeRequest := false
default PauseContainerRequest := false
default ReseedRandomDevRequest := false
default ResizeVolumeRequest := false
default ResumeContainerRequest := false
default SetGuestDateTimeRequest := false
default SetIPTablesRequest := false
default SetPolicyRequest := false
default StartTracingRequest := false
default StopTracingRequest := false
default TtyWinResizeRequest := false
default UpdateContainerRequest := false
default UpdateEphemeralMountsRequest := false
default VolumeStatsRequest := false
default WriteStreamRequest := false

shared := "/run/kata-containers/shared/containers"

sandbox_shm := "/run/kata-containers/sandbox/shm"

ephemeral := "/run/kata-containers/sandbox/ephemeral"

id_pattern := "^[0-9a-f]{64}$"

container_type := "io.kubernetes.cri.container-type"

# State, which the agent keeps for these rules: the sandbox's id; `id-ID` = name of a container that
# was created; `made-NAME`, once one of the name was; `live-NAME` = id of the one that runs;
# `ran-NAME`, once one of the name ran.
state := data.pstate

key(kind, name) := concat("-", [kind, name])

put(name, value) := {"op": "add", "path": concat("/", ["/pstate", name]), "value": value}

drop(name) := {"op": "remove", "path": concat("/", ["/pstate", name])}

has(name) if state[name]

# The Pod's containers in the order of their start; the first is its sandbox.
pod_containers := array.concat([cloister_pod.sandbox], cloister_pod.containers)

named(name) := container if {
	some container in pod_containers
	container.name == name
}

is_begun if {
	some container in cloister_pod.containers
	has(key("made", container.name))
}

# ---------------------------------------------------------------------------------- the sandbox

CreateSandboxRequest := {"allowed": true, "ops": [put("sandbox", input.sandbox_id)]} if {
	not has("sandbox")
	has_only(input, {
		"hostname", "dns", "storages", "sandbox_pidns", "sandbox_id", "guest_hook_path",
		"kernel_modules", "guest_userns",
	})
	regex.match(id_pattern, input.sandbox_id)
	input.sandbox_pidns == false
	input.guest_hook_path == ""
	count(input.kernel_modules) == 0
	object.get(input, "guest_userns", false) == false
	count(input.storages) <= 1
	every storage in input.storages {
		is_sandbox_shm(storage)
	}
}

is_sandbox_shm(storage) if {
	has_only(storage, storage_fields)
	storage.driver == "ephemeral"
	count(storage.driver_options) == 0
	storage.source == "shm"
	storage.fstype == "tmpfs"
	storage.mount_point == sandbox_shm
	storage.fs_group == null
	every option in storage.options {
		regex.match("^(noexec|nosuid|nodev|mode=1777|size=[0-9]+)$", option)
	}
}

# The network of the Pod, before anything of it runs; loopback is the guest's own.
UpdateInterfaceRequest if {
	not is_begun
	input.interface.name != "lo"
	input.interface.device != "lo"
	input.interface.hwAddr != "00:00:00:00:00:00"
	input.interface.raw_flags in {0, 128}
}

UpdateRoutesRequest if {
	not is_begun
	every route in input.routes.Routes {
		route.device != "lo"
		not is_loopback(route.source)
		not is_loopback(route.dest)
	}
}

AddARPNeighborsRequest if {
	not is_begun
	every neighbor in input.neighbors.ARPNeighbors {
		neighbor.device != "lo"
		not is_loopback(neighbor.toIPAddress.address)
	}
}

is_loopback(address) if startswith(address, "127.")

is_loopback(address) if regex.match("^[0:]+1(/[0-9]+)?$", address)

# ---------------------------------------------------------------------------- life of a container

CreateContainerRequest := {"allowed": true, "ops": ops} if {
	regex.match(id_pattern, input.container_id)
	not has(key("id", input.container_id))
	some place, container in pod_containers
	is_of(container)
	every earlier in array.slice(pod_containers, 0, place) {
		has(key("made", earlier.name))
	}
	is_frame_admitted
	is_root_admitted(container)
	is_process_admitted(container, input.OCI.Process)
	input.OCI.Process.Args == container.args
	are_capabilities_exact(container, input.OCI.Process.Capabilities)
	are_mounts_admitted(container)
	are_storages_admitted(container)
	are_devices_admitted(container)
	are_annotations_admitted(container)
	ops := [put(key("id", input.container_id), container.name), put(key("made", container.name), true)]
}

StartContainerRequest := {"allowed": true, "ops": ops} if {
	name := state[key("id", input.container_id)]
	not has(key("live", name))
	may_run(named(name))
	ops := [put(key("live", name), input.container_id), put(key("ran", name), true)]
}

may_run(container) if container.restarts

may_run(container) if not has(key("ran", container.name))

# The agent kills what is left of a container before it removes it.
RemoveContainerRequest if not has(key("id", input.container_id))

RemoveContainerRequest := {"allowed": true, "ops": [drop(key("id", input.container_id))]} if {
	name := state[key("id", input.container_id)]
	not is_live(name, input.container_id)
}

RemoveContainerRequest := {"allowed": true, "ops": ops} if {
	name := state[key("id", input.container_id)]
	is_live(name, input.container_id)
	ops := [drop(key("id", input.container_id)), drop(key("live", name))]
}

is_live(name, id) if state[key("live", name)] == id

# Hooks of the Pod, in the container that runs and is theirs. No stream of the host leads there.
ExecProcessRequest if {
	has_only(input, {
		"container_id", "exec_id", "string_user", "process", "stdin_port", "stdout_port",
		"stderr_port",
	})
	name := state[key("id", input.container_id)]
	is_live(name, input.container_id)
	container := named(name)
	input.process.Args in container.hooks
	is_process_admitted(container, input.process)
	are_capabilities_within(container, object.get(input.process, "Capabilities", null))
	has_no_string_user
	has_no_stream("stdin_port")
	has_no_stream("stdout_port")
	has_no_stream("stderr_port")
}

ReadStreamRequest if named(state[key("id", input.container_id)]).logs

# ------------------------------------------------------------------------------- files of the host

# The kubelet writes files of a volume into a folder with a time, which ..data names, and which the
# names of the files lead to: links lead nowhere else.
CopyFileRequest if {
	has_only(input, {
		"path", "file_type", "symlink_target", "file_size", "file_mode", "dir_mode", "uid", "gid",
		"offset",
	})
	copied := regex.find_all_string_submatch_n(copy_pattern, input.path, 1)[0]
	is_file_admitted(copied[1], trim_prefix(copied[2], "/"))
}

copy_pattern := concat("", ["^", shared, "/[0-9a-f]{64}-[0-9a-f]{16}-([^/]+)(|/.+)$"])

time_pattern := "^\\.\\.[0-9]{4}_[0-9]{2}_[0-9]{2}_[0-9]{2}_[0-9]{2}_[0-9]{2}\\.[0-9]+$"

is_file_admitted(name, "") if {
	input.file_type == "Regular"
	some place in pod_files
	name == last_part(place)
}

is_file_admitted(name, path) if {
	some container in cloister_pod.containers
	some mount in container.mounts
	name == last_part(mount.destination)
	is_part_admitted(volume_of(mount), path)
}

is_part_admitted(volume, "") if {
	has_files(volume)
	input.file_type == "Directory"
}

is_part_admitted(volume, path) if {
	volume.files
	input.file_type == "Directory"
	regex.match(time_pattern, path)
}

is_part_admitted(volume, path) if {
	input.file_type == "Regular"
	parts := split(path, "/")
	count(parts) == 2
	regex.match(time_pattern, parts[0])
	parts[1] in volume.files
}

is_part_admitted(volume, path) if {
	volume.files
	input.file_type == "Symlink"
	path in {"..data", "..data_tmp"}
	is_string(input.symlink_target)
	regex.match(time_pattern, input.symlink_target)
}

is_part_admitted(volume, path) if {
	input.file_type == "Symlink"
	path in volume.files
	input.symlink_target == concat("/", ["..data", path])
}

# A store of models, whose contents the guest verifies.
is_part_admitted(volume, path) if {
	volume.tree
	input.file_type in {"Directory", "Regular"}
	every part in split(path, "/") {
		not part in {"", ".", ".."}
	}
}
