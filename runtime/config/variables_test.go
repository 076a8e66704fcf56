package config

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v4"
)

func variables(pairs ...string) func(string) (string, bool) {
	return func(name string) (string, bool) {
		for _, pair := range pairs {
			if at, value, _ := strings.Cut(pair, "="); at == name {
				return value, true
			}
		}
		return "", false
	}
}

func problemsOf(t *testing.T, err error) *Error {
	t.Helper()
	refused, ok := err.(*Error)
	if !ok {
		t.Fatalf("got %v, want problems", err)
	}
	return refused
}

// A variable that changes what a file says is told with the line that it overrides, also where a problem comes of it.
func TestOverridesAreTold(t *testing.T) {
	c, err := Parse("node.yaml", []byte(receiverYAML), variables("LMCACHE_CHUNK_SIZE=512"))
	if err != nil {
		t.Fatal(err)
	}
	if len(c.Notes) != 1 || !strings.Contains(c.Notes[0].String(), "LMCACHE_CHUNK_SIZE") ||
		!strings.Contains(c.Notes[0].String(), "overrides chunk_size of node.yaml:") ||
		!strings.Contains(c.Notes[0].String(), `"256"`) {
		t.Errorf("got notes %v", c.Notes)
	}
	if c, err = Parse("node.yaml", []byte(receiverYAML), variables("LMCACHE_PD_ROLE=receiver")); err != nil ||
		len(c.Notes) > 0 {
		t.Errorf("a variable that says the same as the file: got %v, %v", c.Notes, err)
	}
	_, err = Parse("node.yaml", []byte(receiverYAML), variables("LMCACHE_PD_ROLE=sender"))
	refused := problemsOf(t, err)
	for _, want := range []string{"pd_proxy_host: it is missing", "LMCACHE_PD_ROLE makes this a sender",
		"LMCACHE_PD_ROLE: \"sender\": it overrides pd_role of node.yaml:"} {
		if !strings.Contains(refused.Error(), want) {
			t.Errorf("%q is not said:\n%v", want, refused)
		}
	}
}

// Variables that are nearly ours are named; LMCache's own and everybody else's are none of our business.
func TestStrayVariables(t *testing.T) {
	notes := StrayVariables([]string{
		"LMCACHE_CHUNKSIZE=512", "LM_CACHE_CHUNK_SIZE=512", "LMCACHE_PD_ROL=sender", "lmcache_pd_role=sender",
		"LMCACHE_CHUNK_SIZE=512", "LMCACHE_EXTRA_CONFIG={}", "LMCACHE_LOCAL_CPU=True", "LMCACHE_CONFIG_FILE=x",
		"LMCACHE_USE_EXPERIMENTAL=True", "LMCACHE_LOG_LEVEL=DEBUG", "LMCACHE_TRACK_USAGE=false", "HOME=/root",
		"LMCACHE_CONTROLLER_CONTROLLER_HOST=::", "VLLM_PORT=1", "LMCACHE_STORE_ASYNC=1",
	})
	var said []string
	for _, n := range notes {
		said = append(said, n.Field+" "+n.Remedy[strings.LastIndexByte(n.Remedy, ' ')+1:])
	}
	want := []string{"LMCACHE_CHUNKSIZE LMCACHE_CHUNK_SIZE?", "LM_CACHE_CHUNK_SIZE LMCACHE_CHUNK_SIZE?",
		"LMCACHE_PD_ROL LMCACHE_PD_ROLE?", "lmcache_pd_role LMCACHE_PD_ROLE?"}
	if !slices.Equal(said, want) {
		t.Errorf("got %q, want %q", said, want)
	}
	if got := StrayDirectoryVariables([]string{"LMCACHE_CONTROLLER_HOST=::", "LMCACHE_CONTROLLER_CONTROLLERHOST=::"}); len(
		got) != 1 || !strings.Contains(got[0].Remedy, "LMCACHE_CONTROLLER_CONTROLLER_HOST") {
		t.Errorf("of a directory: got %v", got)
	}
}

// What was meant for us below extra_config, and is not ours as it stands, drops nothing in silence.
func TestMisplacedBelowExtraConfig(t *testing.T) {
	base := receiverYAML[:strings.Index(receiverYAML, "extra_config:")]
	for extra, want := range map[string]string{
		"{kvfery: {lease: 10}}":               "did you mean extra_config.kvferry?",
		"{KVferry: {lease: 10}}":              "did you mean extra_config.kvferry?",
		"{layout: {num_layers: 3}}":           "move them to extra_config.kvferry.layout",
		"{put_timeout: 3}":                    "move it to extra_config.kvferry.put_timeout",
		"{p2p_max_retry_cont: 3}":             "did you mean extra_config.p2p_max_retry_count?",
		"{kvferry: {}, nixl_pool_size: 3}":    "",
		"{remote: {anything: 1}, layout: 17}": "",
	} {
		_, err := Parse("node.yaml", []byte(base+"extra_config: "+extra+"\n"), nil)
		if got := err != nil && strings.Contains(err.Error(), "extra_config."); got != (want != "") ||
			want != "" && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", extra, err, want)
		}
	}
}

// No message shows a password: not the value of a key that is one, nor what stands in front of a host in the value of
// any key, in a file, in a variable, or in a value that a variable overrides.
func TestNoMessageShowsAPassword(t *testing.T) {
	const password = "hunter2"
	for _, s := range []*schema{&nodeSchema, &directorySchema} {
		for _, k := range slices.Concat(s.top, s.own, s.extra) {
			forms := []string{"redis://:hunter2@host:6379/0", "user:hunter2@host", "[user:hunter2@host, b]",
				"{a: 'redis://u:hunter2@h'}", "https://u:hunter2@" + strings.Repeat("x", 100)}
			if k.secret {
				forms = append(forms, "[hunter2]", "{hunter2: 1}", `"hunter2`+strings.Repeat("x", textLenMax)+`"`)
			}
			for _, form := range forms {
				file := k.name + ": " + form + "\n"
				switch {
				case slices.ContainsFunc(s.own, func(o key) bool { return o.name == k.name }):
					file = "extra_config: {kvferry: {" + nested(k.name, form) + "}}\n"
				case strings.HasPrefix(k.name, extraPrefix):
					file = "extra_config: {" + strings.TrimPrefix(k.name, extraPrefix) + ": " + form + "}\n"
				}
				variable := s.envPrefix + strings.ToUpper(k.name) + "=" + form
				for _, env := range []func(string) (string, bool){nil, variables(variable)} {
					var err error
					var notes []Problem
					if s == &nodeSchema {
						c, refused := Parse("f.yaml", []byte(file), env)
						if err = refused; c != nil {
							notes = c.Notes
						}
					} else {
						c, refused := ParseDirectory("f.yaml", []byte(file+file), env)
						if err = refused; c != nil {
							notes = c.Notes
						}
					}
					said, _ := json.Marshal([]any{err, notes})
					if text := string(said); strings.Contains(text, password) || err != nil && strings.Contains(err.Error(), password) {
						t.Errorf("%s%v: shown: %v %s", file, env != nil, err, text)
					}
				}
			}
		}
	}
	for _, a := range []string{"a_passwrd", "b"} { // Two values of one secret that differ.
		_, err := ParseDirectory("f.yaml", []byte("extra_config: {kvferry: {directory: {log_password: hunter2}}}\n"),
			variables("LMCACHE_CONTROLLER_EXTRA_CONFIG={\"kvferry\": {\"directory\": {\"log_password\": \""+a+"hunter2\"}}}",
				"LMCACHE_CONTROLLER_CONTROLLER_PORT=x"))
		if err == nil || strings.Contains(err.Error(), password) {
			t.Errorf("got %v", err)
		}
	}
}

// nested writes a.b: v as a mapping in a mapping.
func nested(name, value string) string {
	if group, rest, found := strings.Cut(name, "."); found {
		return group + ": {" + nested(rest, value) + "}"
	}
	return name + ": " + value
}

// Each key that takes a host takes an IPv6 address with brackets and without, and says how to write what it is not.
func TestHostsAreWrittenInAnyForm(t *testing.T) {
	hosts := 0
	for _, s := range []*schema{&nodeSchema, &directorySchema} {
		for _, k := range slices.Concat(s.top, s.own) {
			if !strings.HasPrefix(k.kind.takes, "host") || strings.HasPrefix(k.kind.takes, "host:port") {
				continue
			}
			hosts++
			for _, good := range []string{"::1", "[::1]", "fe80::1%eth0", "10.0.0.1", "node-1.example"} {
				d := &draft{schema: s, settings: map[string]setting{}}
				if code, remedy := k.kind.read(d, scalarNode(good)); code != codeOK {
					t.Errorf("%s: %s: %s", k.name, good, remedy)
				}
			}
			for _, bad := range []string{"tcp://10.0.0.1", "10.0.0.1:7300", "[::1]:7300", "u:p@h", "[10.0.0.x]", "a b"} {
				d := &draft{schema: s, settings: map[string]setting{}}
				if code, remedy := k.kind.read(d, scalarNode(bad)); code == codeOK || remedy == "" {
					t.Errorf("%s: %s is taken", k.name, bad)
				}
			}
		}
	}
	if hosts < 7 {
		t.Errorf("%d keys take a host, want all of them", hosts)
	}
	for _, every := range []string{"0.0.0.0", "::", "[::]", "*", `""`} {
		c, err := ParseDirectory("d.yaml", []byte("controller_host: \""+strings.Trim(every, `"`)+
			"\"\nextra_config: {kvferry: {directory: {advertise_host: d.example}}}\n"), nil)
		if err != nil || c.Host != "" || c.Advertise != "d.example" {
			t.Errorf("controller_host %s: got %+v, %v", every, c, err)
		}
	}
	if c := mustParse(t, strings.Replace(receiverYAML, "pd_peer_host: 10.0.0.2", `pd_peer_host: "[fd00::2]"`, 1)); c.PeerHost !=
		"fd00::2" || c.Data.TCPHost != "fd00::2" {
		t.Errorf("got %q, %q", c.PeerHost, c.Data.TCPHost)
	}
}

// Two receivers that bind one port of one host cannot both start.
func TestReceiversOfOneHostNeedPortsOfTheirOwn(t *testing.T) {
	a, b := mustParse(t, receiverYAML), mustParse(t, receiverYAML)
	b.Name = "b.yaml"
	got := ComparePorts(a, b)
	if len(got) == 0 || !strings.Contains(got[0].String(), "has this port on the same host") {
		t.Errorf("got %v", got)
	}
	other := mustParse(t, strings.Replace(receiverYAML, "10.0.0.2", "10.0.0.3", 1))
	if got := ComparePorts(a, other); len(got) > 0 {
		t.Errorf("on two hosts: got %v", got)
	}
}

func scalarNode(value string) *yaml.Node { return &yaml.Node{Kind: yaml.ScalarNode, Value: value} }
