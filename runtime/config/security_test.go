package config

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
)

// A process does not open an address that other hosts reach without authentication, unless its file says so.
func TestExposed(t *testing.T) {
	for name, c := range map[string]struct {
		from, to string
		exposed  bool
	}{
		"loopback":   {"pd_peer_host: 10.0.0.2", "pd_peer_host: 127.0.0.2", false},
		"another":    {"", "", true},
		"a name":     {"pd_peer_host: 10.0.0.2", "pd_peer_host: decode.example", true},
		"declared":   {"  kvferry:\n", "  kvferry:\n    security: {allow_off: true}\n", false},
		"permissive": {"  kvferry:\n", "  kvferry:\n    security: {mode: permissive, dir: /certs}\n", false},
		"strict":     {"  kvferry:\n", "  kvferry:\n    security: {mode: strict, dir: /certs}\n", false},
	} {
		text := strings.Replace(receiverYAML, c.from, c.to, 1)
		cfg, err := Parse("node.yaml", []byte(text), environ())
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if err := cfg.Security.CheckExposed(); (err != nil) != c.exposed {
			t.Errorf("%s: the error is %v", name, err)
		}
	}
	const share = "enable_p2p: true\np2p_host: 10.0.0.2\np2p_init_ports: [9960]\np2p_lookup_ports: [9962]\n"
	for where, text := range map[string]string{
		"pd_peer_host: \"10.0.0.2\"": strings.Replace(receiverYAML, "  kvferry:\n", "  kvferry:\n    data: {tcp_host: 127.0.0.1}\n", 1),
		"data.tcp_host": strings.Replace(strings.Replace(receiverYAML, "pd_peer_host: 10.0.0.2", "pd_peer_host: 127.0.0.2", 1),
			"  kvferry:\n", "  kvferry:\n    data: {tcp_host: 10.0.0.2}\n", 1),
		"p2p_host": share,
	} {
		cfg, err := Parse("node.yaml", []byte(text), environ())
		if err != nil {
			t.Fatalf("%s: %v", where, err)
		}
		err = cfg.Security.CheckExposed()
		if err == nil || !strings.Contains(err.Error(), where) || strings.Count(err.Error(), "every process") != 1 {
			t.Errorf("the error is %v; want one at %s", err, where)
		}
	}
	d, err := ParseDirectory("directory.yaml", []byte("controller_host: 0.0.0.0\n"), environ())
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Security.CheckExposed(); err == nil || !strings.Contains(err.Error(), "directory.yaml:1:18: controller_host") {
		t.Errorf("every interface: the error is %v", err)
	}
}

// The files of a folder have the names that kvferry certs, cert-manager and SPIRE's helper give them, and each can be
// elsewhere.
func TestSecurityFolder(t *testing.T) {
	text := strings.Replace(receiverYAML, "  kvferry:\n",
		"  kvferry:\n    security: {mode: strict, dir: /certs, policy: /etc/policy.yaml}\n", 1)
	cfg, err := Parse("node.yaml", []byte(text), environ())
	if err != nil {
		t.Fatal(err)
	}
	s := cfg.Security
	if got := []string{s.Cert, s.Key, s.CA, s.Policy}; strings.Join(got, " ") !=
		filepath.Join("/certs", "tls.crt")+" /certs/tls.key /certs/ca.crt /etc/policy.yaml" {
		t.Errorf("the files are %v", got)
	}
}

// The keys about tenants and chunks say what they read, and name the key, the value and the remedy of what they refuse.
func TestTenantsOfANode(t *testing.T) {
	with := func(lines string) (*Config, error) {
		return Parse("node.yaml", []byte(strings.Replace(receiverYAML, "  kvferry:\n", "  kvferry:\n"+lines, 1)), environ())
	}
	for text, want := range map[string]string{
		"[default, 9f86d081884c7d65]": "default,9f86d081884c7d65", "9f86d081884c7d65": "9f86d081884c7d65",
		"[0123456789012345, 1234567890123e12]": "0123456789012345,1234567890123e12", // texts that YAML would read as numbers
	} {
		cfg, err := with("    tenants: " + text + "\n    security: {allow_off: true}\n")
		if err != nil || cfg.Machine.Tenants.String() != want {
			t.Errorf("%s: %v, %v", text, cfg, err)
		}
	}
	for lines, want := range map[string]string{
		"    tenants: [9F86D081884C7D65]\n":                       "kvferry tenant",
		"    tenants: []\n":                                       "write 1 to 256 tenants",
		"    tenants: [[a]]\n":                                    "item 1 is no tenant",
		"    security: {mode: strict, dir: /c, chunks: proven}\n": "matters only with security.mode: permissive",
		"    security: {chunks: some}\n":                          "use any or proven",
	} {
		if _, err := with(lines); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v; want %q", lines, err, want)
		}
	}
	cfg, err := with("    security: {mode: permissive, dir: /c, chunks: proven, shared_pages: true}\n")
	if err != nil || !cfg.Security.ProvenChunks || !cfg.Security.SharedPages {
		t.Errorf("%+v, %v", cfg, err)
	}
}

// The networks of security.plain are read from files and from the environment, and each mistake is named with the value and
// the remedy.
func TestPlainNetworks(t *testing.T) {
	with := func(value, mode string, env ...string) (*Config, error) {
		lines := "  kvferry:\n    security: {mode: " + mode + ", dir: /c"
		if mode == "off" {
			lines = "  kvferry:\n    security: {allow_off: true"
		}
		if value != "" {
			lines += ", plain: " + value
		}
		return Parse("node.yaml", []byte(strings.Replace(receiverYAML, "  kvferry:\n", lines+"}\n", 1)), environ(env...))
	}
	for value, want := range map[string]string{
		"10.1.2.0/24": "[10.1.2.0/24]", "[10.1.2.7/32, 'fd00:1::/64']": "[10.1.2.7/32 fd00:1::/64]",
		"'10.1.2.7/32, fd00:1::/64'": "[10.1.2.7/32 fd00:1::/64]",
	} {
		if cfg, err := with(value, "strict"); err != nil || fmt.Sprint(cfg.Security.Plain) != want {
			t.Errorf("%s: %v, %v", value, cfg, err)
		}
	}
	for value, want := range map[string]string{
		"[10.1.2.7]":              `item 1, "10.1.2.7", is no network: write an address and the length of its prefix`,
		"[10.1.2.0/24, host]":     `item 2, "host", is no network`,
		"[10.1.2.3/24]":           "write 10.1.2.0/24, or 10.1.2.3/32 for the one address",
		"0.0.0.0/0":               "contains every address",
		"['::/0']":                "contains every address",
		"['::ffff:10.0.0.0/104']": "write it as IPv4",
		"[]":                      "write 1 to 64 networks",
		"[[10.1.2.0/24]]":         "is no network",
	} {
		_, err := with(value, "strict")
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "security.plain") {
			t.Errorf("%s: %v; want %q", value, err, want)
		}
	}
	for _, mode := range []string{"off", "permissive"} {
		if _, err := with("10.1.2.0/24", mode); err == nil || !strings.Contains(err.Error(), "it matters only with security.mode: strict") {
			t.Errorf("%s: %v", mode, err)
		}
	}
	d, err := ParseDirectory("directory.yaml", []byte("extra_config: {kvferry: {security: {mode: strict, dir: /c, plain: [10.1.2.0/24]}}}\n"),
		environ())
	if err != nil || len(d.Security.Plain) != 1 {
		t.Errorf("a directory: %v, %v", d, err)
	}
}
