package config

import (
	"fmt"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
)

const shareYAML = `
enable_p2p: true
p2p_host: 10.0.0.2
p2p_init_ports: [9960]
p2p_lookup_ports: [9961]
enable_controller: true
lmcache_instance_id: node-1
controller_pull_url: 10.0.0.1:8300
controller_reply_url: 10.0.0.1:8400
lmcache_worker_ports: [9962]
pd_buffer_size: 64MiB
`

const directoryYAML = `
controller_host: 10.0.0.1
`

// TestCompareDirectories runs testdata/compare_directory.txt: keys of a node that shares, and after each line --- those
// of a directory. They replace those of files that go together.
func TestCompareDirectories(t *testing.T) {
	datadriven.RunTest(t, "testdata/compare_directory.txt", func(t *testing.T, td *datadriven.TestData) string {
		parts := strings.Split(td.Input+"\n", "---\n")
		base := shareYAML
		switch td.Cmd {
		case "sharing":
		case "sender":
			base = senderYAML
		default:
			td.Fatalf(t, "write sharing or sender, and the keys of a node and of directories with lines --- between them")
		}
		node := mustParse(t, replaced(base, parts[0]))
		var directories []*Directory
		for i, part := range parts[1:] {
			d, err := ParseDirectory(fmt.Sprintf("directory-%d.yaml", i+1), []byte(replaced(directoryYAML, part)), nil)
			if err != nil {
				t.Fatal(err)
			}
			directories = append(directories, d)
		}
		problems, notes := CompareDirectories([]*Config{node}, directories)
		for _, p := range append(problems, notes...) {
			if p.Remedy == "" || p.Field == "" || p.Value == "" {
				t.Errorf("got %+v", p)
			}
		}
		if len(problems)+len(notes) == 0 {
			return "ok\n"
		}
		return lines(problems) + lines(notes)
	})
}

func TestCompareInstances(t *testing.T) {
	const other = "p2p_host: 10.0.0.3\n"
	a := mustParse(t, shareYAML)
	problems := Compare(a, mustParse(t, replaced(shareYAML, other)))
	if len(problems) != 1 || problems[0].Field != instanceKey || problems[0].Code != Disagree {
		t.Errorf("two nodes of one name: %v", lines(problems))
	}
	for _, more := range []string{"lmcache_instance_id: node-2\n", "enable_controller: false\n"} {
		if problems := Compare(a, mustParse(t, replaced(shareYAML, other+more))); len(problems) > 0 {
			t.Errorf("with %s%v", more, lines(problems))
		}
	}
}

func TestIsDirectory(t *testing.T) {
	for text, want := range map[string]bool{
		"":                            false,
		"# nothing\n":                 false,
		"[":                           false,
		"- a\n":                       false,
		"controller_host: 10.0.0.1\n": true,
		"extra_config: {kvferry: {directory: {workers: 5}}}\n":                            true,
		"extra_config: {kvferry: {log: {level: debug}}}\n":                                true, // No node has so little.
		"extra_config: {kvferry: {limits: {message_bytes: 1MiB, lookup_hashes: 7}}}\n":    true,
		"extra_config: {somebody: else}\n":                                                false,
		"unheard_of: 1\n":                                                                 false,
		"controller_monitor_ports: {pull: 1, reply: 2}\nlmcache_worker_timeout: 4\n":      true,
		"lmcache_worker_timeout: 4\npd_role: sender\n":                                    false,
		"lmcache_worker_timeout: 4\ncontroller_host: 10.0.0.1\nlmcache_instance_id: a\n":  true,
		"lmcache_worker_timeout: 4\nextra_config: {kvferry: {share: {journal: 1}, x: }}}": false,
		senderYAML: false, receiverYAML: false, shareYAML: false, directoryYAML: true,
	} {
		if got := IsDirectory([]byte(text)); got != want {
			t.Errorf("%q: %t", text, got)
		}
	}
}
