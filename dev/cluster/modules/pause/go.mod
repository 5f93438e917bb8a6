module cloister.dev/dev/cluster/pause

go 1.26.0

toolchain go1.26.8
