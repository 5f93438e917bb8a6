module cloister.dev/demo/hello

go 1.22

toolchain go1.26.8
