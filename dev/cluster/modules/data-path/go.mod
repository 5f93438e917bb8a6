module cloister.dev/dev/cluster/data-path

go 1.26.0

toolchain go1.26.8
