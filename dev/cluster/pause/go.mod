module cloister.dev/dev/cluster/pause

go 1.22
