package agent_policy

import future.keywords.every
import future.keywords.if
import future.keywords.in

# ------------------------------------------------------------------------------ parts of a request

is_of(container) if {
	container.name == cloister_pod.sandbox.name
	input.container_id == state.sandbox
	input.OCI.Annotations[container_type] == "sandbox"
	input.OCI.Annotations["io.katacontainers.pkg.oci.container_type"] == "pod_sandbox"
}

is_of(container) if {
	container.name != cloister_pod.sandbox.name
	input.container_id != state.sandbox
	input.OCI.Annotations[container_type] == "container"
	input.OCI.Annotations["io.katacontainers.pkg.oci.container_type"] == "pod_container"
	input.OCI.Annotations["io.kubernetes.cri.container-name"] == container.name
}

has_no_string_user if object.get(input, "string_user", null) == null

has_no_stream(port) if object.get(input, port, 0) == 0

is_output_admitted if {
	has_no_stream("stdout_port")
	has_no_stream("stderr_port")
}

is_output_admitted if {
	name := input.OCI.Annotations["io.kubernetes.cri.container-name"]
	named(name).logs
}

has_only(given, names) if object.keys(given) - names == set()

# What no container of an enclave has. A field that these rules do not know is refused.
is_frame_admitted if {
	has_only(input, {
		"container_id", "exec_id", "string_user", "devices", "storages", "OCI", "sandbox_pidns",
		"shared_mounts", "stdin_port", "stdout_port", "stderr_port",
	})
	has_only(input.OCI, {
		"Version", "Process", "Root", "Hostname", "Mounts", "Hooks", "Annotations", "Linux",
		"Solaris", "Windows",
	})
	has_only(input.OCI.Root, {"Path", "Readonly"})
	object.get(input, "exec_id", "") in {"", input.container_id}
	input.sandbox_pidns == false
	count(object.get(input, "shared_mounts", [])) == 0
	has_no_string_user
	has_no_stream("stdin_port")
	is_output_admitted
	object.get(input.OCI, "Hooks", null) == null
	object.get(input.OCI, "Solaris", null) == null
	object.get(input.OCI, "Windows", null) == null
	is_linux_admitted(input.OCI.Linux)
}

is_linux_admitted(linux) if {
	has_only(linux, {
		"UIDMappings", "GIDMappings", "Sysctl", "Resources", "CgroupsPath", "Namespaces", "Devices",
		"Seccomp", "RootfsPropagation", "MaskedPaths", "ReadonlyPaths", "MountLabel", "IntelRdt",
	})
	count(object.get(linux, "UIDMappings", [])) == 0
	count(object.get(linux, "GIDMappings", [])) == 0
	object.get(linux, "RootfsPropagation", "") == ""
	object.get(linux, "MountLabel", "") == ""
	object.get(linux, "IntelRdt", null) == null
	object.get(linux, "Seccomp", null) == null
	are_resources_admitted(linux.Resources)
	are_namespaces_admitted(linux.Namespaces)
	are_sysctls_admitted(object.get(linux, "Sysctl", {}))
	are_paths_covered(linux)
}

are_resources_admitted(resources) if {
	has_only(resources, {"Devices", "Memory", "CPU", "Pids", "BlockIO", "HugepageLimits", "Network"})
	count(object.get(resources, "Devices", [])) == 0
	object.get(resources, "BlockIO", null) == null
	object.get(resources, "Network", null) == null
	object.get(resources, "Pids", null) == null
}

are_namespaces_admitted(namespaces) if {
	types := {namespace.Type | some namespace in namespaces}
	{"ipc", "uts"} - types == set()
	types & {"mount", "mnt"} != set()
	types - {"ipc", "uts", "mount", "mnt", "pid", "network", "cgroup"} == set()
	every namespace in namespaces {
		has_only(namespace, {"Type", "Path"})
		namespace.Path == ""
	}
}

sysctls := {"net.ipv4.ip_unprivileged_port_start": "0", "net.ipv4.ping_group_range": "0 2147483647"}

are_sysctls_admitted(given) if {
	every name, value in given {
		sysctls[name] == value
	}
}

masked := {
	"/proc/acpi", "/proc/asound", "/proc/kcore", "/proc/keys", "/proc/latency_stats",
	"/proc/scsi", "/proc/timer_list", "/sys/firmware",
}

readonly := {"/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"}

# Further paths may be covered where nothing of the image is.
are_paths_covered(linux) if {
	hidden := {path | some path in linux.MaskedPaths}
	protected := {path | some path in linux.ReadonlyPaths}
	masked - hidden == set()
	readonly - (hidden | protected) == set()
	every path in hidden | protected {
		regex.match("^/(proc|sys)(/[0-9A-Za-z_-]+)+$", path)
	}
}

is_root_admitted(container) if {
	input.OCI.Root.Path == concat("/", ["/run/kata-containers", input.container_id, "rootfs"])
	input.OCI.Root.Readonly == container.readOnly
}

is_process_admitted(container, process) if {
	has_only(process, {
		"Terminal", "ConsoleSize", "User", "Args", "Env", "Cwd", "Capabilities", "Rlimits",
		"NoNewPrivileges", "ApparmorProfile", "OOMScoreAdj", "SelinuxLabel",
	})
	process.Terminal == false
	process.Cwd == container.workingDir
	process.NoNewPrivileges == true
	object.get(process, "SelinuxLabel", "") == ""
	is_user_admitted(container.user, process.User)
	are_limits_admitted(object.get(process, "Rlimits", []))
	is_environment_admitted(container, process.Env)
}

is_user_admitted(expected, user) if {
	has_only(user, {"UID", "GID", "AdditionalGids", "Username"})
	user.UID == expected.uid
	user.GID == expected.gid
	object.get(user, "Username", "") == ""
	every group in object.get(user, "AdditionalGids", []) {
		group == expected.gid
	}
}

are_limits_admitted(limits) if {
	every limit in limits {
		limit.Type == "RLIMIT_NOFILE"
	}
}

is_environment_admitted(container, entries) if {
	every entry in entries {
		is_variable_admitted(container, entry)
	}
	every name, value in container.environment {
		concat("=", [name, value]) in entries
	}
}

is_variable_admitted(container, entry) if {
	name := split(entry, "=")[0]
	container.environment[name] == trim_prefix(entry, concat("", [name, "="]))
	contains(entry, "=")
}

is_variable_admitted(container, entry) if {
	contains(entry, "=")
	split(entry, "=")[0] in container.variables
}

# The runtime and the kubelet add these to every container; programs of an enclave do not use them.
is_variable_admitted(container, entry) if {
	not container.environment[split(entry, "=")[0]]
	some pattern in runtime_variables
	regex.match(pattern, entry)
}

is_variable_admitted(container, entry) if {
	container.gpus > 0
	regex.match("^(PCI_RESOURCE_NVIDIA_COM_[0-9A-Z_]+=[0-9a-f:.,]+|NVIDIA_VISIBLE_DEVICES=[0-9A-Za-z,-]+)$", entry)
}

runtime_variables := [
	"^HOSTNAME=[0-9a-z.-]+$",
	"^KUBERNETES_(SERVICE_HOST|PORT_443_TCP_ADDR)=[0-9a-f.:]+$",
	"^KUBERNETES_(SERVICE_PORT|SERVICE_PORT_HTTPS|PORT_443_TCP_PORT)=[0-9]+$",
	"^KUBERNETES_(PORT|PORT_443_TCP)=tcp://[0-9a-f.:\\[\\]]+$",
	"^KUBERNETES_PORT_443_TCP_PROTO=tcp$",
]

bare(names) := {trim_prefix(name, "CAP_") | some name in names}

capability_sets := {"Ambient", "Bounding", "Effective", "Inheritable", "Permitted"}

are_capabilities_exact(container, capabilities) if {
	has_only(capabilities, capability_sets)
	expected := {name | some name in container.capabilities}
	bare(capabilities.Bounding) == expected
	bare(capabilities.Effective) == expected
	bare(capabilities.Permitted) == expected
	count(object.get(capabilities, "Inheritable", [])) == 0
	count(object.get(capabilities, "Ambient", [])) == 0
}

are_capabilities_within(_, null)

are_capabilities_within(container, capabilities) if {
	capabilities != null
	has_only(capabilities, capability_sets)
	every kind in capability_sets {
		bare(object.get(capabilities, kind, [])) - {name | some name in container.capabilities} == set()
	}
}

# ---------------------------------------------------------------------------- mounts and storages

kernel_mounts := {
	"/dev": "tmpfs", "/dev/mqueue": "mqueue", "/dev/pts": "devpts",
	"/proc": "proc", "/sys": "sysfs", "/sys/fs/cgroup": "cgroup",
}

kernel_option := "^(no(suid|exec|dev)|r[ow]|(strict|rel)atime|newinstance|nsdelegate|memory_recursiveprot|(mode|size|gid|ptmxmode)=[0-9]+k?)$"

# Files that the kubelet makes for every container.
pod_files := {"/dev/termination-log", "/etc/hostname", "/etc/hosts", "/etc/resolv.conf"}

are_mounts_admitted(container) if {
	places := [mount.destination | some mount in input.OCI.Mounts]
	count(places) == count({place | some place in places})
	every mount in input.OCI.Mounts {
		has_only(mount, {"destination", "source", "type_", "options"})
		is_mount_admitted(container, mount)
	}
	every expected in container.mounts {
		expected.destination in places
	}
	every needed in ["/dev", "/proc", "/sys"] {
		needed in places
	}
	every later, place in places {
		every earlier in array.slice(places, 0, later) {
			not startswith(earlier, concat("", [place, "/"]))
		}
	}
}

is_mount_admitted(container, mount) if {
	some expected in container.mounts
	expected.destination == mount.destination
	mount.type_ == "bind"
	is_source_admitted(expected, mount.source)
	{option | some option in mount.options} & {"ro", "rw"} == {mode_of(expected.readOnly)}
	are_bind_options(mount.options)
}

is_mount_admitted(container, mount) if {
	not is_expected(container, mount.destination)
	kernel_mounts[mount.destination] == mount.type_
	is_protected(mount)
	every option in mount.options {
		regex.match(kernel_option, option)
	}
}

is_protected(mount) if not mount.type_ in {"cgroup", "sysfs"}

is_protected(mount) if {
	"ro" in mount.options
	not "rw" in mount.options
}

is_mount_admitted(container, mount) if {
	not is_expected(container, mount.destination)
	mount.destination in pod_files
	mount.type_ == "bind"
	are_bind_options(mount.options)
	is_copy(mount.source, mount.destination)
}

is_mount_admitted(container, mount) if {
	not is_expected(container, "/dev/shm")
	mount.destination == "/dev/shm"
	mount.type_ == "bind"
	mount.source == sandbox_shm
	are_bind_options(mount.options)
}

mode_of(true) := "ro"

mode_of(false) := "rw"

are_bind_options(options) if {
	{option | some option in options} - {"nodev", "noexec", "nosuid", "rbind", "ro", "rprivate", "rw"} == set()
}

is_expected(container, place) if {
	some expected in container.mounts
	expected.destination == place
}

is_source_admitted(expected, source) if {
	volume_of(expected).memory
	source == concat("/", [ephemeral, expected.volume])
}

is_source_admitted(expected, source) if {
	has_files(volume_of(expected))
	is_copy(source, expected.destination)
}

volume_of(mount) := cloister_pod.volumes[mount.volume]

has_files(volume) if volume.files

has_files(volume) if volume.tree

# The runtime copies files for a container to a path with its id, random digits and the last part of
# the place where they are mounted.
is_copy(source, place) if {
	prefix := concat("", [shared, "/", input.container_id, "-"])
	startswith(source, prefix)
	parts := split(trim_prefix(source, prefix), "-")
	regex.match("^[0-9a-f]{16}$", parts[0])
	concat("-", array.slice(parts, 1, count(parts))) == last_part(place)
}

last_part(place) := part if {
	parts := split(place, "/")
	part := parts[count(parts) - 1]
}

storage_fields := {
	"driver", "driver_options", "source", "fstype", "options", "mount_point", "fs_group", "shared",
}

are_storages_admitted(container) if {
	every storage in input.storages {
		has_only(storage, storage_fields)
	}
	images := [storage | some storage in input.storages; storage.driver == "image_guest_pull"]
	count(images) == 1
	is_image_admitted(container, images[0])
	volumes := [storage | some storage in input.storages; storage.driver != "image_guest_pull"]
	expected := {concat("/", [ephemeral, mount.volume]) | some mount in container.mounts; volume_of(mount).memory}
	count(volumes) == count(expected)
	expected == {storage.mount_point | some storage in volumes}
	every storage in volumes {
		is_memory(storage)
	}
}

is_memory(storage) if {
	storage.driver == "ephemeral"
	count(storage.driver_options) == 0
	storage.source == "tmpfs"
	storage.fstype == "tmpfs"
	storage.fs_group == null
	count(storage.options) == 0
}

is_image_admitted(container, storage) if {
	storage.fstype == "overlay"
	storage.fs_group == null
	object.get(storage, "shared", false) == false
	count(storage.options) == 0
	storage.mount_point == input.OCI.Root.Path
	is_image_source(container, storage)
}

# The guest's own pause image, whatever name the host has for it; a container that is one must not
# be unpacked from it.
is_image_source(container, storage) if {
	not container.image
	is_pulled_as(storage, "sandbox")
}

is_image_source(container, storage) if {
	digest_of(storage.source) == digest_of(container.image)
	name := object.get(input.OCI.Annotations, "io.kubernetes.cri.image-name", container.image)
	digest_of(name) == digest_of(container.image)
	is_pulled_as(storage, "container")
}

digest_of(image) := parts[1] if {
	parts := split(image, "@")
	count(parts) == 2
	parts[0] != ""
	regex.match("^sha256:[0-9a-f]{64}$", parts[1])
}

is_pulled_as(storage, kind) if {
	count(storage.driver_options) == 0
	kind == "container"
}

is_pulled_as(storage, kind) if {
	count(storage.driver_options) == 0
	kind == "sandbox"
	storage.source == "pause"
}

is_pulled_as(storage, kind) if {
	count(storage.driver_options) == 1
	option := storage.driver_options[0]
	startswith(option, "image_guest_pull=")
	metadata := json.unmarshal(trim_prefix(option, "image_guest_pull=")).metadata
	metadata[container_type] == kind
	not metadata["io.kubernetes.cri-o.ContainerType"]
}

are_devices_admitted(container) if {
	count(object.get(input.OCI.Linux, "Devices", [])) <= container.gpus
	count(object.get(input, "devices", [])) <= container.gpus
	every device in object.get(input.OCI.Linux, "Devices", []) {
		startswith(device.Path, "/dev/vfio/")
	}
	every device in object.get(input, "devices", []) {
		startswith(device.type_, "vfio")
		startswith(device.container_path, "/dev/vfio/")
		device.vm_path == ""
	}
}

are_annotations_admitted(container) if {
	input.OCI.Annotations["io.kubernetes.cri.sandbox-id"] == state.sandbox
	every name, value in input.OCI.Annotations {
		is_annotation_admitted(container, name, value)
	}
}

is_annotation_admitted(_, name, _) if name in {
	"io.katacontainers.config.hypervisor.cc_init_data",
	"io.katacontainers.pkg.oci.bundle_path",
	"io.katacontainers.pkg.oci.container_type",
	"io.kubernetes.cri.container-name",
	"io.kubernetes.cri.container-type",
	"io.kubernetes.cri.image-name",
	"io.kubernetes.cri.podsandbox.image-name",
	"io.kubernetes.cri.sandbox-cpu-period",
	"io.kubernetes.cri.sandbox-cpu-quota",
	"io.kubernetes.cri.sandbox-cpu-shares",
	"io.kubernetes.cri.sandbox-id",
	"io.kubernetes.cri.sandbox-log-directory",
	"io.kubernetes.cri.sandbox-memory",
	"io.kubernetes.cri.sandbox-name",
	"io.kubernetes.cri.sandbox-namespace",
	"io.kubernetes.cri.sandbox-uid",
	"nerdctl/network-namespace",
}

is_annotation_admitted(container, name, value) if {
	container.gpus > 0
	regex.match("^cdi\\.k8s\\.io/vfio[0-9]+$", name)
	regex.match("^nvidia\\.com/[a-z]+=[0-9]+$", value)
}
