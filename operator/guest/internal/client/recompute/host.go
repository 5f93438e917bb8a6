package recompute

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"

	"go.yaml.in/yaml/v3"
)

// Values that a Host has where its manifest has none (crds/cloister_crds/kinds/host.py).
const (
	defaultTEE             = "None"
	defaultIsolation       = "Container"
	defaultOverheadCPU     = 0
	defaultOverheadMemory  = 128
	unitPod                = "Pod"
	manifestKind, apiGroup = "Host", "cloister.dev/"
)

// hostPart returns the measurement's part of a Host's manifest. The digest of the release's rules is
// the published document's: the verifier compares it with those that it knows.
func hostPart(manifest []byte, gpus int, published any) (map[string]any, error) {
	root, err := readYAML(manifest)
	if err != nil {
		return nil, err
	}
	if kind := text(field(root, "kind")); kind != manifestKind {
		return nil, fmt.Errorf("kind: %q, not %s; write it by `kubectl get chost NAME -o yaml`", kind, manifestKind)
	}
	if version := text(field(root, "apiVersion")); len(version) <= len(apiGroup) || version[:len(apiGroup)] != apiGroup {
		return nil, fmt.Errorf("apiVersion: %q does not begin with %s", version, apiGroup)
	}
	spec := field(root, "spec")
	if spec == nil {
		spec = &yaml.Node{Kind: yaml.MappingNode}
	}
	host := map[string]any{
		"tee":              withDefault(text(field(spec, "tee")), defaultTEE),
		"networkIsolation": withDefault(text(field(spec, "networkIsolation")), defaultIsolation),
	}
	for _, name := range []string{"teeUnit", "runtimeClassName"} {
		if value := text(field(spec, name)); value != "" {
			host[name] = value
		}
	}
	sizing := field(spec, "sizing")
	cpu, err := number(sizing, "overheadCpuMilli", defaultOverheadCPU)
	if err != nil {
		return nil, err
	}
	memory, err := number(sizing, "overheadMemoryMB", defaultOverheadMemory)
	if err != nil {
		return nil, err
	}
	host["sizing"] = map[string]any{"overheadCpuMilli": cpu, "overheadMemoryMB": memory}
	if gpu := field(spec, "gpu"); gpu != nil && gpus > 0 {
		for name, measured := range map[string]string{"resource": "gpuResource", "deviceClass": "gpuDeviceClass"} {
			if value := text(field(gpu, name)); value != "" {
				host[measured] = value
			}
		}
	}
	files, err := initdataPart(spec, published)
	if err != nil {
		return nil, err
	}
	host["initdata"] = files
	return host, nil
}

// initdataPart returns the digests of the initdata files, by name.
func initdataPart(spec *yaml.Node, published any) (map[string]any, error) {
	files := map[string]any{}
	listed := field(spec, "initdata")
	if listed != nil && listed.Kind != yaml.SequenceNode {
		return nil, errors.New("spec.initdata: not a list")
	}
	if listed != nil {
		for index, each := range listed.Content {
			name, content := text(field(each, "name")), field(each, "content")
			if name == "" || content == nil || content.Kind != yaml.ScalarNode {
				return nil, fmt.Errorf("spec.initdata[%d]: name or content is missing", index)
			}
			if _, twice := files[name]; twice {
				return nil, fmt.Errorf("spec.initdata[%d].name: %q is given twice", index, name)
			}
			files[name] = digestOf([]byte(content.Value))
		}
	}
	if _, own := files[policyFile]; !own && text(field(spec, "teeUnit")) == unitPod {
		said, _ := published.(map[string]any)
		given, _ := said["initdata"].(map[string]any)
		if files[policyFile] = given[policyFile]; files[policyFile] == nil {
			files[policyFile] = "the rules of a release"
		}
	}
	return files, nil
}

func text(node *yaml.Node) string {
	if node == nil || node.Kind != yaml.ScalarNode || node.Tag == "!!null" {
		return ""
	}
	return node.Value
}

func withDefault(value, otherwise string) string {
	if value == "" {
		return otherwise
	}
	return value
}

func number(node *yaml.Node, name string, otherwise int) (json.Number, error) {
	value := text(field(node, name))
	if value == "" {
		return json.Number(strconv.Itoa(otherwise)), nil
	}
	parsed, err := strconv.Atoi(value)
	if err != nil || parsed < 0 {
		return "", fmt.Errorf("spec.sizing.%s: %q is not a number", name, value)
	}
	return json.Number(strconv.Itoa(parsed)), nil
}
