// Package kubernetes has tests of the manifests in deploy/kubernetes and examples, without a cluster: kustomize renders
// them, each document is decoded strictly into the type of its kind, references must lead somewhere, and the commands and
// configurations must be such as the binary accepts. KVFERRY names the binary.
package kubernetes

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"
)

// A workload is a Deployment or a StatefulSet.
type workload struct {
	name     string
	selector *metav1.LabelSelector
	template *corev1.PodTemplateSpec
}

// A bundle is what one kustomization renders.
type bundle struct {
	t         *testing.T
	workloads []workload
	services  []corev1.Service
	budgets   []policyv1.PodDisruptionBudget
	policies  []networkingv1.NetworkPolicy
	configs   map[string]corev1.ConfigMap
	secrets   map[string]corev1.Secret
}

// render builds a kustomization of a copy of the repository's manifests.
func render(t *testing.T, root, dir string) *bundle {
	t.Helper()
	out, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), filepath.Join(root, dir))
	if err != nil {
		t.Fatal(err)
	}
	b := &bundle{t: t, configs: map[string]corev1.ConfigMap{}, secrets: map[string]corev1.Secret{}}
	for _, r := range out.Resources() {
		text, err := r.AsYAML()
		if err != nil {
			t.Fatal(err)
		}
		b.add(r.GetKind(), text)
	}
	return b
}

// decode decodes a document strictly: an unknown or repeated field is an error.
func decode[T any](t *testing.T, text []byte) (x T) {
	t.Helper()
	if err := yaml.UnmarshalStrict(text, &x); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	return x
}

func (b *bundle) add(kind string, text []byte) {
	b.t.Helper()
	switch kind {
	case "Deployment":
		x := decode[appsv1.Deployment](b.t, text)
		b.workloads = append(b.workloads, workload{x.Name, x.Spec.Selector, &x.Spec.Template})
	case "StatefulSet":
		x := decode[appsv1.StatefulSet](b.t, text)
		b.workloads = append(b.workloads, workload{x.Name, x.Spec.Selector, &x.Spec.Template})
		if !slices.ContainsFunc(b.services, func(s corev1.Service) bool { return s.Name == x.Spec.ServiceName }) {
			b.t.Errorf("StatefulSet %s has the service %q, which is not there", x.Name, x.Spec.ServiceName)
		}
	case "Service":
		b.services = append(b.services, decode[corev1.Service](b.t, text))
	case "PodDisruptionBudget":
		b.budgets = append(b.budgets, decode[policyv1.PodDisruptionBudget](b.t, text))
	case "NetworkPolicy":
		b.policies = append(b.policies, decode[networkingv1.NetworkPolicy](b.t, text))
	case "ConfigMap":
		x := decode[corev1.ConfigMap](b.t, text)
		b.configs[x.Name] = x
	case "Secret":
		x := decode[corev1.Secret](b.t, text)
		b.secrets[x.Name] = x
	case "Job":
		decode[batchv1.Job](b.t, text)
	default:
		b.t.Errorf("a document of kind %s, which the tests do not know", kind)
	}
}

// podsOf returns the workloads whose pods a selector selects.
func (b *bundle) podsOf(s *metav1.LabelSelector) (selected []workload) {
	b.t.Helper()
	sel, err := metav1.LabelSelectorAsSelector(s)
	if err != nil {
		b.t.Fatal(err)
	}
	for _, w := range b.workloads {
		if sel.Matches(labels.Set(w.template.Labels)) {
			selected = append(selected, w)
		}
	}
	return selected
}

// containersOf returns all containers of a pod.
func containersOf(w workload) []corev1.Container {
	return slices.Concat(w.template.Spec.InitContainers, w.template.Spec.Containers)
}

// hasPort reports whether a container of the workload declares a port.
func hasPort(w workload, port int32) bool {
	return slices.ContainsFunc(containersOf(w), func(c corev1.Container) bool {
		return slices.ContainsFunc(c.Ports, func(p corev1.ContainerPort) bool { return p.ContainerPort == port })
	})
}

// verifyReferences checks that what names another object or port names one that is there.
func (b *bundle) verifyReferences() {
	b.t.Helper()
	for _, w := range b.workloads {
		if len(b.podsOf(w.selector)) == 0 {
			b.t.Errorf("%s does not select its own pods", w.name)
		}
		b.verifyVolumes(w)
	}
	for _, s := range b.services {
		pods := b.podsOf(&metav1.LabelSelector{MatchLabels: s.Spec.Selector})
		if len(pods) != 1 {
			b.t.Errorf("service %s selects the pods of %d workloads", s.Name, len(pods))
			continue
		}
		for _, p := range s.Spec.Ports {
			port := p.Port
			if p.TargetPort.Type == intstr.Int && p.TargetPort.IntVal != 0 {
				port = p.TargetPort.IntVal
			}
			if !hasPort(pods[0], port) {
				b.t.Errorf("service %s leads to port %d, which no container of %s has", s.Name, port, pods[0].name)
			}
		}
	}
	for _, x := range b.budgets {
		if n := len(b.podsOf(x.Spec.Selector)); n != 1 {
			b.t.Errorf("the disruption budget %s selects the pods of %d workloads", x.Name, n)
		}
	}
	for _, x := range b.policies {
		for _, pod := range b.podsOf(&x.Spec.PodSelector) {
			for _, rule := range x.Spec.Ingress {
				for _, p := range rule.Ports {
					if !hasPort(pod, p.Port.IntVal) {
						b.t.Errorf("policy %s opens port %d, which no container of %s has", x.Name, p.Port.IntVal, pod.name)
					}
				}
			}
		}
	}
}

// verifyVolumes checks that a pod's mounts have volumes, and its volumes have mounts and sources.
func (b *bundle) verifyVolumes(w workload) {
	b.t.Helper()
	mounted := map[string]bool{}
	for _, c := range containersOf(w) {
		for _, m := range c.VolumeMounts {
			mounted[m.Name] = true
		}
	}
	for _, v := range w.template.Spec.Volumes {
		if !mounted[v.Name] {
			b.t.Errorf("%s has the volume %s, which nothing mounts", w.name, v.Name)
		}
		delete(mounted, v.Name)
		if v.ConfigMap != nil && b.configs[v.ConfigMap.Name].Data == nil {
			b.t.Errorf("%s needs the config map %q", w.name, v.ConfigMap.Name)
		}
		if v.Secret != nil && b.secrets[v.Secret.SecretName].Data == nil {
			b.t.Errorf("%s needs the secret %q", w.name, v.Secret.SecretName)
		}
	}
	for name := range mounted {
		b.t.Errorf("%s mounts %s, which is no volume", w.name, name)
	}
}

// verifyPods checks what every pod needs to be run well: probes, limits and few rights.
func (b *bundle) verifyPods() {
	b.t.Helper()
	for _, w := range b.workloads {
		spec := w.template.Spec
		if s := spec.SecurityContext; s == nil || s.RunAsNonRoot == nil || !*s.RunAsNonRoot || s.SeccompProfile == nil {
			b.t.Errorf("%s may run as root, or without a seccomp profile", w.name)
		}
		for _, c := range containersOf(w) {
			isInit := slices.ContainsFunc(spec.InitContainers, func(x corev1.Container) bool { return x.Name == c.Name })
			if isInit && c.RestartPolicy == nil {
				continue // It ends before the others begin.
			}
			if c.StartupProbe == nil && c.ReadinessProbe == nil {
				b.t.Errorf("%s of %s has neither a startup nor a readiness probe", c.Name, w.name)
			}
			if c.Resources.Requests.Memory().IsZero() || c.Resources.Limits.Memory().IsZero() || c.Resources.Requests.Cpu().IsZero() {
				b.t.Errorf("%s of %s requests no memory or processor time, or has no limit of memory", c.Name, w.name)
			}
			if len(c.Command) == 0 || c.Command[0] != "kvferry" {
				continue
			}
			if c.LivenessProbe == nil {
				b.t.Errorf("%s of %s has no liveness probe", c.Name, w.name)
			}
			if s := c.SecurityContext; s == nil || s.AllowPrivilegeEscalation == nil || *s.AllowPrivilegeEscalation ||
				s.ReadOnlyRootFilesystem == nil || !*s.ReadOnlyRootFilesystem || s.Capabilities == nil || len(s.Capabilities.Drop) == 0 {
				b.t.Errorf("%s of %s has rights that it does not need", c.Name, w.name)
			}
		}
	}
}

// verifyCommands checks the command lines and the configurations of kvferry's containers with the binary.
func (b *bundle) verifyCommands() {
	b.t.Helper()
	for _, w := range b.workloads {
		for _, c := range containersOf(w) {
			if len(c.Command) < 2 || c.Command[0] != "kvferry" {
				continue
			}
			line := slices.Concat(c.Command[1:], c.Args)
			b.verifyFlags(w.name, line)
			for _, probe := range []*corev1.Probe{c.StartupProbe, c.ReadinessProbe, c.LivenessProbe} {
				if probe != nil && probe.Exec != nil {
					b.verifyFlags(w.name, probe.Exec.Command[1:])
				}
			}
			if i := slices.Index(line, "--config"); i >= 0 {
				b.verifyConfig(w, c, line[i+1])
			}
		}
	}
}

// verifyFlags checks that the subcommand has each flag of a command line.
func (b *bundle) verifyFlags(name string, line []string) {
	b.t.Helper()
	help, err := exec.Command(os.Getenv("KVFERRY"), line[0], "--help").Output()
	if err != nil {
		b.t.Fatal(err)
	}
	for _, word := range line[1:] {
		if strings.HasPrefix(word, "--") && !strings.Contains(string(help), word+" ") {
			b.t.Errorf("%s: kvferry %s has no flag %s", name, line[0], word)
		}
	}
}

// verifyConfig has the binary check the configuration of a container, with the container's environment and secret.
func (b *bundle) verifyConfig(w workload, c corev1.Container, file string) {
	b.t.Helper()
	dir, env, configs := b.t.TempDir(), []string{}, map[string]string{}
	for _, v := range w.template.Spec.Volumes {
		if v.ConfigMap != nil {
			configs = b.configs[v.ConfigMap.Name].Data
		}
		if v.Secret != nil {
			for name, content := range b.secrets[v.Secret.SecretName].Data {
				if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
					b.t.Fatal(err)
				}
			}
		}
	}
	text, ok := configs[filepath.Base(file)]
	if !ok {
		b.t.Errorf("%s reads %s, and the config map has %v", w.name, file, slices.Sorted(maps.Keys(configs)))
		return
	}
	path := filepath.Join(dir, filepath.Base(file))
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		b.t.Fatal(err)
	}
	for _, e := range c.Env {
		value := strings.ReplaceAll(e.Value, "/certs", dir)
		if e.ValueFrom != nil {
			value = map[string]string{"status.podIP": "10.1.2.3", "metadata.name": "pod-1"}[e.ValueFrom.FieldRef.FieldPath]
		}
		env = append(env, e.Name+"="+value)
	}
	check := exec.Command(os.Getenv("KVFERRY"), "config", "check", path)
	check.Env = append(os.Environ(), env...)
	if out, err := check.CombinedOutput(); err != nil {
		b.t.Errorf("%s: %v\n%s", w.name, err, out)
	}
}

// copyManifests copies what the kustomizations read into a folder, with certificates as a user makes them.
func copyManifests(t *testing.T, certs map[string][]string) (root string) {
	t.Helper()
	root = t.TempDir()
	for _, dir := range []string{"deploy", "examples"} {
		if err := os.CopyFS(filepath.Join(root, dir), os.DirFS(filepath.Join("..", "..", dir))); err != nil {
			t.Fatal(err)
		}
	}
	for example, names := range certs {
		out := filepath.Join(root, "examples", example, "certs")
		if err := os.RemoveAll(out); err != nil {
			t.Fatal(err)
		}
		if text, err := exec.Command(os.Getenv("KVFERRY"), append([]string{"certs", "--out", out}, names...)...).CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, text)
		}
	}
	return root
}

// The examples render, every reference leads somewhere, and what they run is what the binary accepts.
func TestExamples(t *testing.T) {
	if os.Getenv("KVFERRY") == "" {
		t.Fatal("KVFERRY does not name the binary")
	}
	certs := map[string][]string{"vllm-pd": {"prefill/agent", "decode/agent"}, "lmcache-pd": {"directory/agent", "both/agent"}}
	root := copyManifests(t, certs)
	for example := range certs {
		t.Run(example, func(t *testing.T) {
			b := render(t, root, filepath.Join("examples", example))
			b.verifyReferences()
			b.verifyPods()
			b.verifyCommands()
			agents := 0
			for _, w := range b.workloads {
				for _, c := range containersOf(w) {
					if len(c.Command) > 1 && c.Command[0] == "kvferry" && c.Command[1] == "agent" {
						agents++
					}
				}
			}
			if want := map[string]int{"vllm-pd": 2, "lmcache-pd": 1}[example]; agents != want {
				t.Errorf("%d workloads have an agent, want %d", agents, want)
			}
		})
	}
}

// The job of a campaign is one that Kubernetes accepts.
func TestCampaign(t *testing.T) {
	text, err := os.ReadFile("../../deploy/campaign/job.yaml")
	if err != nil {
		t.Fatal(err)
	}
	(&bundle{t: t}).add("Job", text)
}

// The policies name labels that the components give, and let agents, directories and proxies through to each other, and
// nobody else.
func TestNetworkPolicies(t *testing.T) {
	root := copyManifests(t, map[string][]string{"lmcache-pd": {"directory/agent", "both/agent"}})
	overlay := filepath.Join(root, "overlay")
	if err := os.MkdirAll(overlay, 0o755); err != nil {
		t.Fatal(err)
	}
	text := "resources: [../examples/lmcache-pd, ../deploy/kubernetes/proxy]\ncomponents: [../deploy/kubernetes/network]\n"
	if err := os.WriteFile(filepath.Join(overlay, "kustomization.yaml"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	b := render(t, root, "overlay")
	b.verifyReferences()
	var lines []string
	for _, p := range b.policies {
		for _, to := range b.podsOf(&p.Spec.PodSelector) {
			for _, rule := range p.Spec.Ingress {
				for _, from := range rule.From {
					for _, w := range b.podsOf(from.PodSelector) {
						lines = append(lines, fmt.Sprintf("%s -> %s (%d ports)", w.name, to.name, len(rule.Ports)))
					}
				}
			}
		}
	}
	slices.Sort(lines)
	want := []string{"directory -> lmcache (0 ports)", "lmcache -> directory (3 ports)", "lmcache -> lmcache (0 ports)",
		"proxy -> lmcache (0 ports)"}
	if !slices.Equal(lines, want) {
		t.Errorf("the policies allow %q, want %q; no port means every port", lines, want)
	}
}

// The checks of this package find what is wrong.
func TestChecksFindMistakes(t *testing.T) {
	for name, change := range map[string]func(text string) string{
		"a mount without a volume": func(s string) string { return strings.Replace(s, "name: run, mountPath", "name: ran, mountPath", 1) },
		"another port":             func(s string) string { return strings.Replace(s, "containerPort: 7300", "containerPort: 7301", 1) },
		"a flag that is not there": func(s string) string { return strings.Replace(s, "--socket", "--sockets", 1) },
		"another configuration":    func(s string) string { return strings.Replace(s, "decode.yaml, --socket", "decod.yaml, --socket", 1) },
	} {
		if !fails(t, func(t *testing.T, root string) {
			for _, file := range []string{"common/agent.yaml", "decode/agent.yaml"} {
				path := filepath.Join(root, "deploy/kubernetes/agent", file)
				text, err := os.ReadFile(path)
				if err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(path, []byte(change(string(text))), 0o600); err != nil {
					t.Fatal(err)
				}
			}
		}) {
			t.Errorf("%s is not found", name)
		}
	}
}

// fails reports whether the checks of the example of vLLM fail after a change to the copied files. They run in a process of
// their own.
func fails(t *testing.T, change func(t *testing.T, root string)) bool {
	t.Helper()
	root := copyManifests(t, map[string][]string{"vllm-pd": {"prefill/agent", "decode/agent"}})
	change(t, root)
	child := exec.Command(os.Args[0], "-test.run=^TestCopiedExample$", "-test.v")
	child.Env = append(os.Environ(), "KVFERRY_MANIFESTS="+root)
	out, err := child.CombinedOutput()
	if err == nil {
		t.Logf("%s", out)
	}
	return err != nil && strings.Contains(string(out), "manifests_test.go")
}

// TestCopiedExample is what fails runs.
func TestCopiedExample(t *testing.T) {
	root := os.Getenv("KVFERRY_MANIFESTS")
	if root == "" {
		t.Skip("the other tests run it")
	}
	b := render(t, root, "examples/vllm-pd")
	b.verifyReferences()
	b.verifyPods()
	b.verifyCommands()
}
