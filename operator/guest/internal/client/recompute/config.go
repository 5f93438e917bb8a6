package recompute

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strconv"

	"go.yaml.in/yaml/v3"
)

// maxFile is the largest configuration file that can be deployed, in bytes.
const maxFile = 256 << 10

// configuration is what of a configuration file the measurement repeats.
type configuration struct {
	containers []any
	gpus       int
}

// readConfig reads containers and GPUs of a configuration file. It does not judge the rest: that file
// is measured as it is, and an enclave of an invalid one is never started.
func readConfig(content []byte) (configuration, error) {
	var read configuration
	if len(content) > maxFile {
		return read, fmt.Errorf("%d bytes; a file that can be deployed has at most %d", len(content), maxFile)
	}
	root, err := readYAML(content)
	if err != nil {
		return read, err
	}
	if gpus := field(root, "gpus"); gpus != nil {
		if read.gpus, err = strconv.Atoi(gpus.Value); err != nil || gpus.Kind != yaml.ScalarNode || read.gpus < 0 {
			return read, fmt.Errorf("gpus: %q is not a number of GPUs", gpus.Value)
		}
	}
	containers := field(root, "containers")
	if containers == nil || containers.Kind != yaml.SequenceNode || len(containers.Content) == 0 {
		return read, errors.New("containers: missing, or not a list")
	}
	for index, each := range containers.Content {
		made := map[string]any{}
		for _, name := range []string{"name", "image"} {
			value := field(each, name)
			if value == nil || value.Kind != yaml.ScalarNode || value.Value == "" {
				return read, fmt.Errorf("containers[%d].%s: missing", index, name)
			}
			made[name] = value.Value
		}
		read.containers = append(read.containers, made)
	}
	return read, nil
}

// readYAML reads one document of plain YAML into its tree. What can mean two things is an error:
// repeated keys, anchors, aliases, merge keys and tags.
func readYAML(content []byte) (*yaml.Node, error) {
	decoder := yaml.NewDecoder(bytes.NewReader(content))
	var document yaml.Node
	if err := decoder.Decode(&document); err != nil {
		return nil, fmt.Errorf("not YAML: %w", err)
	}
	if err := decoder.Decode(&yaml.Node{}); !errors.Is(err, io.EOF) {
		return nil, errors.New("more than one YAML document")
	}
	if len(document.Content) != 1 || document.Content[0].Kind != yaml.MappingNode {
		return nil, errors.New("not a map")
	}
	return document.Content[0], checkPlain(document.Content[0])
}

func checkPlain(node *yaml.Node) error {
	if node.Kind == yaml.AliasNode || node.Anchor != "" {
		return fmt.Errorf("line %d: an anchor or alias; write the value out", node.Line)
	}
	if node.Style&yaml.TaggedStyle != 0 {
		return fmt.Errorf("line %d: the tag %s; leave it out", node.Line, node.Tag)
	}
	seen := map[string]bool{}
	for index, each := range node.Content {
		if err := checkPlain(each); err != nil {
			return err
		}
		if node.Kind != yaml.MappingNode || index%2 == 1 {
			continue
		}
		if each.Kind != yaml.ScalarNode || each.Tag == "!!merge" {
			return fmt.Errorf("line %d: a key that is not a plain word", each.Line)
		}
		if seen[each.Value] {
			return fmt.Errorf("line %d: the key %q is given twice", each.Line, each.Value)
		}
		seen[each.Value] = true
	}
	return nil
}

// field returns the value of a key of a map; nil if there is none.
func field(node *yaml.Node, name string) *yaml.Node {
	if node == nil || node.Kind != yaml.MappingNode {
		return nil
	}
	for index := 0; index+1 < len(node.Content); index += 2 {
		if node.Content[index].Value == name {
			return node.Content[index+1]
		}
	}
	return nil
}
