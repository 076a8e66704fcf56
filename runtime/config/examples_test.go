package config_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"testing"

	"go.yaml.in/yaml/v4"

	"github.com/kvferry/kvferry/runtime/config"
)

// contained is an agent or a directory that an example runs in a container.
type contained struct {
	where, file string
	env         map[string]string
}

// TestContainersOfExamples has agents and directories of the examples read their files, as Compose and Kubernetes start
// them. Each variable must change what is read: one with a wrong name changes nothing, and nobody would say so.
func TestContainersOfExamples(t *testing.T) {
	for _, example := range []string{"vllm-pd", "lmcache-pd"} {
		dir := filepath.Join("../../examples", example)
		found := append(composed(t, dir), manifested(t, dir)...)
		if len(found) < 4 {
			t.Errorf("%s: %d agents and directories are in its containers", example, len(found))
		}
		for _, one := range found {
			t.Run(example+"/"+one.where, func(t *testing.T) {
				data, err := os.ReadFile(filepath.Join(dir, one.file))
				if err != nil {
					t.Fatal(err)
				}
				read := func(without string) any {
					env := func(name string) (string, bool) {
						value, set := one.env[name]
						return value, set && name != without
					}
					var got any
					var err error
					if one.file == "directory.yaml" {
						got, err = config.ParseDirectory(one.file, data, env)
					} else {
						got, err = config.Parse(one.file, data, env)
					}
					if err != nil {
						t.Fatalf("without %q: %v", without, err)
					}
					return got
				}
				if err := securityOf(read("")).CheckExposed(); err != nil {
					t.Errorf("it does not start: %v", err)
				}
				for name, value := range one.env {
					if reflect.DeepEqual(read(""), read(name)) {
						t.Errorf("%s=%s changes nothing of %s", name, value, one.file)
					}
				}
			})
		}
	}
}

// TestPackagedExamples reads the configurations that a release's packages have as examples. They start as they are, the
// pair fits together, and all can run on one host.
func TestPackagedExamples(t *testing.T) {
	files, err := filepath.Glob("../../deploy/etc/*.yaml")
	if err != nil || len(files) < 4 {
		t.Fatalf("found %q, %v", files, err)
	}
	read, operators := map[string]*config.Config{}, map[uint16]string{}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var ports []uint16
		name := filepath.Base(file)
		if name == "directory.yaml" {
			c, err := config.ParseDirectory(name, data, nil)
			if err != nil {
				t.Fatal(err)
			}
			ports = c.Operator.Ports
			err = c.Security.CheckExposed()
			if err != nil {
				t.Errorf("%s does not start: %v", name, err)
			}
		} else {
			c, err := config.Parse(name, data, nil)
			if err != nil {
				t.Fatal(err)
			}
			read[name], ports = c, c.Operator.Ports
			if err := c.Security.CheckExposed(); err != nil {
				t.Errorf("%s does not start: %v", name, err)
			}
		}
		for _, port := range ports {
			if other := operators[port]; other != "" {
				t.Errorf("%s and %s have the port %d for operators", name, other, port)
			}
			operators[port] = name
		}
	}
	if problems := config.Compare(read["prefill.yaml"], read["decode.yaml"]); len(problems) > 0 {
		t.Errorf("the pair does not go together: %v", problems)
	}
}

// securityOf gives that of a configuration of either kind.
func securityOf(parsed any) *config.Security {
	if d, ok := parsed.(*config.Directory); ok {
		return &d.Security
	}
	return &parsed.(*config.Config).Security
}

// composed gives those of compose.yaml.
func composed(t *testing.T, dir string) (found []contained) {
	t.Helper()
	var file struct {
		Services map[string]struct {
			Command     []string
			Environment map[string]string
			Volumes     []string
		}
	}
	for _, text := range documents(t, filepath.Join(dir, "compose.yaml")) {
		if err := yaml.Unmarshal(text, &file); err != nil {
			t.Fatal(err)
		}
	}
	for name, service := range file.Services {
		path := configOf(service.Command)
		if path == "" {
			continue
		}
		mounted := slices.ContainsFunc(service.Volumes, func(volume string) bool {
			return volume == fmt.Sprintf("./%s:%s:ro", filepath.Base(path), path)
		})
		if !mounted {
			t.Errorf("%s: nothing is at %s: volumes are %v", name, path, service.Volumes)
		}
		found = append(found, contained{"compose/" + name, filepath.Base(path), service.Environment})
	}
	return found
}

// partsOf lists the manifests of deploy/kubernetes with the agents and directories of each example.
var partsOf = map[string][]string{
	"vllm-pd":    {"agent/prefill/agent.yaml", "agent/decode/agent.yaml"},
	"lmcache-pd": {"agent/share/agent.yaml", "directory/directory.yaml"},
}

// manifested gives those of pods. An agent's container has the variables of agent/common, too.
func manifested(t *testing.T, dir string) (found []contained) {
	t.Helper()
	const parts = "../../deploy/kubernetes"
	_, common := containerOf(t, filepath.Join(parts, "agent/common/agent.yaml"))
	for _, part := range partsOf[filepath.Base(dir)] {
		command, env := containerOf(t, filepath.Join(parts, part))
		if part != "directory/directory.yaml" {
			maps.Copy(env, common)
		}
		found = append(found, contained{part, filepath.Base(configOf(command)), env})
	}
	return found
}

// containerOf returns the command and the variables of the only container in a manifest of a workload.
func containerOf(t *testing.T, path string) (command []string, env map[string]string) {
	t.Helper()
	type container struct {
		Command []string
		Env     []struct {
			Name, Value string
			ValueFrom   struct {
				FieldRef struct {
					FieldPath string `yaml:"fieldPath"`
				} `yaml:"fieldRef"`
			} `yaml:"valueFrom"`
		}
	}
	fields := map[string]string{"status.podIP": "10.1.2.3", "metadata.name": "lmcache-7d4b9c"}
	env = map[string]string{}
	for _, text := range documents(t, path) {
		var object struct {
			Kind string
			Spec struct {
				Template struct {
					Spec struct {
						InitContainers []container `yaml:"initContainers"`
						Containers     []container
					}
				}
			}
		}
		if err := yaml.Unmarshal(text, &object); err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		if object.Kind != "Deployment" {
			continue
		}
		all := slices.Concat(object.Spec.Template.Spec.InitContainers, object.Spec.Template.Spec.Containers)
		if len(all) != 1 {
			t.Fatalf("%s has %d containers", path, len(all))
		}
		for _, variable := range all[0].Env {
			env[variable.Name] = variable.Value + fields[variable.ValueFrom.FieldRef.FieldPath]
		}
		command = all[0].Command
	}
	return command, env
}

// configOf gives the file that an agent or a directory is started with.
func configOf(command []string) string {
	at := slices.Index(command, "--config")
	if at < 0 || command[0] != "kvferry" || !slices.Contains([]string{"agent", "directory"}, command[1]) {
		return ""
	}
	return command[at+1]
}

// documents gives those of a file. What an anchor names is in its place.
func documents(t *testing.T, path string) (found [][]byte) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for decoder := yaml.NewDecoder(bytes.NewReader(data)); ; {
		var one any
		err := decoder.Decode(&one)
		if errors.Is(err, io.EOF) {
			return found
		}
		if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		text, err := yaml.Marshal(one)
		if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		found = append(found, text)
	}
}
