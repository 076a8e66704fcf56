package config

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
)

// TestProblems runs the files of testdata: a base file with lines added, changed or removed, and everything that is
// then wrong with it, or else its notes.
func TestProblems(t *testing.T) {
	for _, file := range []string{"problems.txt", "pull.txt", "npu.txt", "nixl.txt", "both.txt", "share.txt",
		"layerwise.txt", "register.txt"} {
		datadriven.RunTest(t, "testdata/"+file, func(t *testing.T, td *datadriven.TestData) string {
			text := baseText(t, td)
			for _, arg := range td.CmdArgs {
				if arg.Key != "without" {
					td.Fatalf(t, "unknown argument %q", arg.Key)
				}
				for _, key := range arg.Vals {
					text = without(text, key)
				}
			}
			c, err := Parse("node.yaml", []byte(strings.TrimPrefix(text, "\n")+td.Input+"\n"), nil)
			if err == nil {
				return "ok\n" + lines(c.Notes)
			}
			var e *Error
			if !errors.As(err, &e) {
				t.Fatalf("%T: %v", err, err)
			}
			return lines(e.Problems)
		})
	}
}

// baseText is the file that a directive begins with: receiver, sender and both add to one that is right.
func baseText(t *testing.T, td *datadriven.TestData) string {
	switch td.Cmd {
	case "receiver":
		return receiverYAML
	case "sender":
		return senderYAML
	case "both":
		return bothYAML
	case "register":
		return strings.ReplaceAll(without(registerYAML, "extra_config"), "10.0.0.2", "10.0.0.4")
	case "file": // The whole of it.
		return ""
	default:
		td.Fatalf(t, "unknown command %q", td.Cmd)
		return ""
	}
}

func lines(problems []Problem) string {
	var b strings.Builder
	for _, p := range problems {
		if p.Code != Note { // Its text says so.
			b.WriteString(p.Code.String() + " ")
		}
		b.WriteString(p.String() + "\n")
	}
	return b.String()
}

// TestCompare runs testdata/compare.txt: keys of a sender, a line ---, keys of a receiver. They replace those of
// two files that go together. What is said must be said in both orders, of whichever file comes second.
func TestCompare(t *testing.T) {
	datadriven.RunTest(t, "testdata/compare.txt", func(t *testing.T, td *datadriven.TestData) string {
		ofSender, ofReceiver, two := strings.Cut(td.Input+"\n", "---\n")
		if td.Cmd != "compare" || !two {
			td.Fatalf(t, "write compare, and a sender's and a receiver's keys with a line --- between them")
		}
		sender := mustParse(t, replaced(senderYAML, ofSender))
		receiver := mustParse(t, replaced(receiverYAML, ofReceiver))
		sender.Name, receiver.Name = "sender.yaml", "receiver.yaml"
		forth, back := Compare(sender, receiver), Compare(receiver, sender)
		if len(forth) != len(back) {
			t.Errorf("%d problems one way and %d the other:\n%s\n%s", len(forth), len(back), lines(forth), lines(back))
		}
		for _, p := range append(forth, back...) {
			if p.Code != Disagree || p.Remedy == "" || p.Field == "" {
				t.Errorf("got %+v", p)
			}
		}
		if len(forth) == 0 {
			return "ok\n"
		}
		return lines(forth) + lines(back)
	})
}

// Nodes that are both send to each other, and to those that are one: each direction has to go.
func TestCompareOfBoth(t *testing.T) {
	c := func(text, more string) *Config { return mustParse(t, replaced(text, more)) }
	const other = "pd_peer_host: 10.0.0.3\n"
	for name, pair := range map[string]struct {
		a, b *Config
		want []string // fields of b
	}{
		"alike":            {c(bothYAML, ""), c(bothYAML, other), nil},
		"with a receiver":  {c(bothYAML, ""), c(receiverYAML, other), nil},
		"with a sender":    {c(bothYAML, ""), c(senderYAML, ""), nil},
		"mode, said once":  {c(bothYAML, ""), c(bothYAML, other+"pd_pull_mode: true\n"), []string{"pd_pull_mode"}},
		"there and back":   {c(bothYAML, "pd_alloc_fail_backoff_ttl: 1\n"), c(bothYAML, other+slow), []string{allocKey}},
		"the same, turned": {c(bothYAML, other+slow), c(bothYAML, "pd_alloc_fail_backoff_ttl: 1\n"), []string{requestKey}},
	} {
		var got []string
		for _, p := range Compare(pair.a, pair.b) {
			got = append(got, p.Field)
		}
		if !slices.Equal(got, pair.want) {
			t.Errorf("%s: %q, want %q", name, got, pair.want)
		}
	}
}

// slow is a node whose allocations wait for longer than another's requests.
const (
	slow       = "pd_alloc_fail_backoff_ttl: 15\nextra_config: {kvferry: {link: {request_timeout: 16}}}\n"
	allocKey   = "pd_alloc_fail_backoff_ttl"
	requestKey = "extra_config.kvferry.link.request_timeout"
)

func TestCompareOfOneRole(t *testing.T) {
	a, b := mustParse(t, senderYAML), mustParse(t, senderYAML)
	if problems := Compare(a, b); len(problems) != 1 || problems[0].Field != "pd_role" {
		t.Errorf("two senders: got %v", problems)
	}
}

// replaced is text with each of its keys that more has too taken from more.
func replaced(text, more string) string {
	for line := range strings.Lines(more) {
		if key, _, isKey := strings.Cut(line, ":"); isKey && !strings.HasPrefix(line, " ") {
			text = without(text, key)
		}
	}
	return text + more
}

// without drops the line of a key, and what is indented below it.
func without(text, key string) string {
	var kept []string
	dropping := false
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, key+":") {
			dropping = true
			continue
		}
		if dropping = dropping && strings.HasPrefix(line, " "); !dropping {
			kept = append(kept, line)
		}
	}
	return strings.Join(kept, "")
}
