package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// TestTranscripts runs testdata/*.txt. A case has a command line, and the expected standard output, standard error and
// exit code. Arguments are split at white space; "" is an empty argument.
func TestTranscripts(t *testing.T) {
	for _, file := range []string{"config.txt", "decode.txt", "usage.txt"} {
		datadriven.RunTest(t, "testdata/"+file, func(t *testing.T, td *datadriven.TestData) string {
			if td.Cmd != "run" {
				td.Fatalf(t, "unknown command %q", td.Cmd)
			}
			var stdin io.Reader = strings.NewReader("")
			for _, arg := range td.CmdArgs {
				switch {
				case arg.Key == "stdin" && len(arg.Vals) == 1:
					stdin = strings.NewReader(arg.Vals[0])
				case arg.Key == "stdin-file" && len(arg.Vals) == 1:
					data, err := os.ReadFile(arg.Vals[0])
					if err != nil {
						t.Fatal(err)
					}
					stdin = bytes.NewReader(data)
				default:
					td.Fatalf(t, "unknown argument %v", arg)
				}
			}
			args := strings.Fields(td.Input)
			for i := range args {
				args[i] = strings.Trim(args[i], `"`)
			}
			var stdout, stderr bytes.Buffer
			code := run(context.Background(), args, stdin, &stdout, &stderr)
			var out strings.Builder
			out.WriteString(stdout.String())
			for line := range strings.Lines(stderr.String()) {
				out.WriteString("stderr: " + line)
			}
			fmt.Fprintf(&out, "exit code %d\n", code)
			return out.String()
		})
	}
}

func TestVersion(t *testing.T) {
	var text, asJSON, stderr bytes.Buffer
	if code := run(context.Background(), []string{"version"}, nil, &text, &stderr); code != exitOK {
		t.Fatalf("exit code %d: %s", code, &stderr)
	}
	if code := run(context.Background(), []string{"version", "--json"}, nil, &asJSON, &stderr); code != exitOK {
		t.Fatalf("exit code %d: %s", code, &stderr)
	}
	var flag bytes.Buffer
	if code := run(context.Background(), []string{"--version"}, nil, &flag, &stderr); code != exitOK ||
		flag.String() != text.String() {
		t.Errorf("--version: exit code %d, %q, want what the command version prints", code, &flag)
	}
	var b versionReport
	if err := json.Unmarshal(asJSON.Bytes(), &b); err != nil {
		t.Fatal(err)
	}
	if b != currentVersion() || b.Go == "" || b.Platform == "" {
		t.Errorf("got %+v", b)
	}
	for _, line := range []string{"kvferry " + b.Version, "go      " + b.Go} {
		if !strings.Contains(text.String(), line) {
			t.Errorf("got\n%swant a line %q", &text, line)
		}
	}
}

// Every command has a description and an example.
func TestCommandsHaveHelp(t *testing.T) {
	var walk func(*cobra.Command)
	walk = func(cmd *cobra.Command) {
		if cmd.Short == "" || cmd.Example == "" || strings.HasSuffix(cmd.Short, ".") {
			t.Errorf("%s has no help, no example, or a full stop after its short help", cmd.CommandPath())
		}
		var out bytes.Buffer
		args := append(strings.Fields(cmd.CommandPath())[1:], "--help")
		if code := run(context.Background(), args, nil, &out, &out); code != exitOK ||
			!strings.Contains(out.String(), "Usage:") {
			t.Errorf("%v: exit code %d\n%s", args, code, &out)
		}
		for _, sub := range cmd.Commands() {
			walk(sub)
		}
	}
	walk(newRootCommand())
}

// No flag answers a wrong value with a message that only a Go programmer understands.
func TestWrongFlagsAreToldInSentences(t *testing.T) {
	raw := regexp.MustCompile("strconv|time: |json: |Go struct|parsing \"")
	var walk func(*cobra.Command)
	flags := 0
	walk = func(cmd *cobra.Command) {
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			if f.Value.Type() == "string" {
				return
			}
			flags++
			var out bytes.Buffer
			for _, value := range []string{"x", "-1.5e999", "99999999999999999999999", ""} {
				args := append(strings.Fields(cmd.CommandPath())[1:], "--"+f.Name+"="+value)
				probe := newRootCommand()
				found, rest, err := probe.Find(args)
				if err != nil {
					t.Fatal(err)
				}
				if err = found.ParseFlags(rest); err == nil {
					continue // The value is valid for this flag.
				}
				if code := run(context.Background(), args, strings.NewReader(""), &out, &out); code != exitUsage {
					t.Errorf("%v: exit code %d", args, code)
				}
			}
			if raw.MatchString(out.String()) {
				t.Errorf("%s --%s: got\n%s", cmd.CommandPath(), f.Name, &out)
			}
		})
		for _, sub := range cmd.Commands() {
			walk(sub)
		}
	}
	walk(newRootCommand())
	if flags < 20 {
		t.Errorf("only %d flags were looked at", flags)
	}
}
