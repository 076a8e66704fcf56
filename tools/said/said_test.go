package said

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/kvferry/kvferry/protocol"
)

const root = "../.."

func read(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, file))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// sources are the files below a folder of the project whose names end so, with what they hold.
func sources(t *testing.T, below, end string) map[string]string {
	t.Helper()
	all := map[string]string{}
	err := filepath.WalkDir(filepath.Join(root, below), func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (strings.HasPrefix(d.Name(), ".") && d.Name() != ".." || d.Name() == "said"):
			return filepath.SkipDir
		case d.IsDir() || !strings.HasSuffix(path, end):
			return nil
		}
		text, err := os.ReadFile(path)
		all[strings.TrimPrefix(path, root+"/")] = string(text)
		return err
	})
	if err != nil || len(all) == 0 {
		t.Fatalf("%d files *%s below %q: %v", len(all), end, below, err)
	}
	return all
}

var (
	comment = regexp.MustCompile(`(?m)(^[ \t]*//.*\n)+|//.*`)
	rules   = regexp.MustCompile(`\b[Rr]ules? (M[0-9])`)
	foreign = regexp.MustCompile(`\w+-\w+ M[1-9]\b`)
	ofPlain = regexp.MustCompile(`(?i)\bresidual\b|trust_uncommitted|\btrusted\b|without (commit|extensions)`)
)

// Rules that comments and mutants cite are those of docs/safety.md and of no other document, and what is said of peers
// that know no leases cites the rule of these.
func TestRulesThatAreCited(t *testing.T) {
	safety, cited := read(t, "docs/safety.md"), 0
	look := func(file, text string) {
		for _, m := range rules.FindAllStringSubmatch(text, -1) {
			cited++
			if !strings.Contains(safety, "**"+m[1]+", ") {
				t.Errorf("%s cites rule %s, which docs/safety.md has not", file, m[1])
			}
		}
		if other := foreign.FindString(text); other != "" {
			t.Errorf("%s cites %q: rules are those of docs/safety.md", file, other)
		}
		if rules.MatchString(text) && ofPlain.MatchString(text) && !strings.Contains(text, "M5") {
			t.Errorf("%s speaks of peers that know no leases and does not cite M5:\n%s", file, text)
		}
	}
	for file, text := range sources(t, ".", ".go") {
		for _, c := range comment.FindAllString(text, -1) {
			look(file, c)
		}
	}
	for _, entry := range strings.Split(read(t, "sim/mutants.yaml"), "\n- name: ") {
		name, text, _ := strings.Cut(entry, "\n")
		head, _, _ := strings.Cut(text, "\n  edits:")
		look("mutant "+name, head)
	}
	if cited < 100 {
		t.Errorf("only %d rules are cited", cited)
	}
}

// A sentence of a document, and what makes it true.
var sentences = []struct {
	file, says string
	holds      func(t *testing.T) bool
}{
	{"README.md", "a vanilla LMCache sender is refused at once", func(t *testing.T) bool {
		return strings.Contains(read(t, "runtime/plain_test.go"), "func TestPlainSenderIsRefusedAtOnce(")
	}},
	{"effects/machine.go", "The // simulator runs any other as well, beside ranks or alone", func(t *testing.T) bool {
		const ranks = "sim/systems/pd/node.go"
		made := regexp.MustCompile(`\.Machine\b[^\n=]* = `)
		for file, text := range sources(t, "sim", ".go") {
			name := filepath.Base(file)
			if made.MatchString(text) != (name == "node_own.go" || file == ranks) {
				return false
			}
		}
		return strings.Contains(read(t, ranks), "machine, err := rank.Renew(") &&
			strings.Contains(read(t, "sim/node_own.go"), "return of.New(b)")
	}},
	{"docs/protocol.md", "HixlReadyRequest, which kvferry answers and never sends",
		func(t *testing.T) bool {
			for file, text := range sources(t, "fsm", ".go") {
				sends := strings.Contains(text, "ready.Append(") || strings.Contains(text, "HixlReadyRequest{")
				if sends && !strings.HasSuffix(file, "_test.go") {
					return false
				}
			}
			return true
		}},
	{"docs/protocol.md", "each is absent when zero, but for two pairs that are there together or not at all: the stamps " +
		"of HixlMemInfo, and `kvf_failed` with `kvf_rank` of a ProxyNotif", func(*testing.T) bool {
		there := func(b []byte, fields ...string) bool {
			for _, f := range fields {
				if !bytes.Contains(b, []byte(f)) {
					return false
				}
			}
			return true
		}
		return there((&protocol.ProxyNotif{HasExt: true}).Append(nil), "kvf_failed", "kvf_rank") &&
			there((&protocol.HixlMemInfoRequest{HasExt: true}).Append(nil), "kvf_clock", "kvf_echo") &&
			!there((&protocol.AllocRequest{HasExt: true}).Append(nil), "kvf_patience")
	}},
	{"docs/simulator.md", "whether a key is ready or may become so (`Ready`, `Hope`:", func(t *testing.T) bool {
		known := map[string]bool{"ReadyAt": true, "Hopes": true, "StatsOf": true, "SharesOf": true, "KeyHashOf": true,
			"TablesOf": true, "CountsOf": true, "ClaimsOf": true, "LimitsOf": true, "Fetching": true}
		var asks []string
		askers := regexp.MustCompile(`\nfunc ([A-Z]\w+)\(n \*world\.Node`)
		for _, m := range askers.FindAllStringSubmatch(read(t, "sim/systems/pd/machine.go"), -1) {
			asks = append(asks, m[1])
		}
		if len(asks) < len(known) {
			t.Errorf("sim/systems/pd/machine.go asks machines for %d things: look for them elsewhere", len(asks))
		}
		asked := regexp.MustCompile(`\b(Machine|` + strings.Join(asks, "|") + `)\b[.(]`)
		for file, text := range sources(t, "sim/systems", ".go") {
			if strings.HasSuffix(file, "_test.go") || filepath.Dir(file) == "sim/systems/pd" {
				continue
			}
			for _, m := range asked.FindAllStringSubmatch(comment.ReplaceAllString(text, ""), -1) {
				if !known[m[1]] {
					t.Errorf("%s asks the machine for %s", file, m[1])
				}
			}
		}
		return true
	}},
}

// What documents say of the code stands there, and is so.
func TestSentences(t *testing.T) {
	for _, s := range sentences {
		text := strings.Join(strings.Fields(read(t, s.file)), " ")
		if !strings.Contains(text, s.says) {
			t.Errorf("%s does not say %q any more: say what is true, and hold it here", s.file, s.says)
		}
		if !s.holds(t) {
			t.Errorf("%s says %q, which is not so", s.file, s.says)
		}
	}
}
