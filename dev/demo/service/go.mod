module cloister.dev/demo/hello

go 1.22
