//go:build cgo && linux

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/kvferry/kvferry/runtime/libnixl"
)

// nixlNode returns the configuration of a node over libnixl with the given keys of nixl.
func nixlNode(t *testing.T, nixl string) (file string) {
	t.Helper()
	return npuNode(t, "cpu", "nixl", "", "nixl: {"+nixl+"}")
}

// wantNIXL skips a test if KVFERRY_LIBNIXL is not set. The test's process itself does not load libnixl, because under
// the race detector the process would crash at its end.
func wantNIXL(t *testing.T) {
	t.Helper()
	if os.Getenv(libnixl.LibraryVariable) == "" {
		t.Skip("make nixl-test fetches libnixl and runs this")
	}
}

// A node that cannot use libnixl says what to install or to change, and never falls back to a different plane.
func TestNodeWithoutLibnixl(t *testing.T) {
	file := nixlNode(t, "")
	for _, c := range []struct{ name, file, library, tried string }{
		{"named by the variable", file, "/nowhere/libnixl_capi.so", "/nowhere/libnixl_capi.so"},
		{"named by the file", nixlNode(t, "library: /nowhere/else.so"), "/nowhere/libnixl_capi.so", "/nowhere/else.so"},
		{"not libnixl", file, "/proc/self/exe", "/proc/self/exe"},
	} {
		t.Run(c.name, func(t *testing.T) {
			code, first, stderr := runNode(t, c.file, libnixl.LibraryVariable+"="+c.library)
			if code != exitFinding || first.Code == "ok" {
				t.Errorf("exit code %d, and it said %q", code, first.Code)
			}
			for _, want := range []string{"transfer_channel: nixl needs libnixl", c.tried, "nixl-cu12", libnixl.LibraryVariable,
				"nixl.library", "transfer_channel: auto"} {
				if !strings.Contains(stderr, want) || !strings.Contains(first.Error, want) {
					t.Errorf("%q is missing in %s, or in its first line: %s", want, stderr, first.Error)
				}
			}
		})
	}
}

// A node over libnixl serves and logs the library. Contradicting settings of UCX are refused by name.
func TestNodeOverLibnixl(t *testing.T) {
	wantNIXL(t)
	code, first, stderr := runNode(t, nixlNode(t, "transports: tcp"))
	if code != exitOK || first.Code != "ok" || !strings.Contains(stderr, "msg=libnixl ") || !strings.Contains(stderr, "library=/") {
		t.Errorf("exit code %d, it said %+v and\n%s", code, first, stderr)
	}
	code, first, stderr = runNode(t, nixlNode(t, "transports: tcp, in_process: true"))
	if code != exitOK || first.Code != "ok" || !strings.Contains(stderr, "libnixl runs in this process") {
		t.Errorf("in the node's process: exit code %d, it said %+v and\n%s", code, first, stderr)
	}
	code, first, stderr = runNode(t, nixlNode(t, "transports: tcp, program: /bin/true"))
	if code != exitFinding || !strings.Contains(first.Error, "/bin/true") {
		t.Errorf("another program: exit code %d, it said %+v and\n%s", code, first, stderr)
	}
	code, first, _ = runNode(t, nixlNode(t, "transports: tcp"), "UCX_TLS=sm")
	if code != exitFinding || !strings.Contains(first.Error, `transports of nixl are "tcp", but UCX_TLS is "sm"`) {
		t.Errorf("exit code %d, and it said %s", code, first.Error)
	}
}

// The doctor reports the library and tests it.
func TestDoctorOverLibnixl(t *testing.T) {
	wantNIXL(t)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		env, file string
		want      map[string]string
	}{
		{"KVFERRY_TEST=", "", map[string]string{"library": "ok", "release": "ok", "agent": "ok", "write, verified": "ok"}},
		{"UCX_TLS=tcp", "", map[string]string{"agent": "ok", "write, verified": "ok"}},
		{"KVFERRY_TEST=", nixlNode(t, "transports: tcp"), map[string]string{"agent": "ok", "write, verified": "ok"}},
		{"UCX_TLS=nothing", "", map[string]string{"library": "ok", "agent": "", "write, verified": "warning"}},
		{"UCX_TLS=nothing", nixlNode(t, "transports: tcp"), map[string]string{"nixl.transports": "problem",
			"write, verified": "problem"}},
	} {
		cmd := exec.Command(self, "doctor", "--json", "--copy-bytes", "1MiB", "--config", c.file)
		cmd.Env = append(os.Environ(), c.env)
		out, _ := cmd.Output() // The exit code depends on the whole machine.
		var r doctorReport
		if err := json.Unmarshal(out, &r); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		for row, want := range c.want {
			if got := r.rowVerdict("nixl", row); got != want {
				t.Errorf("%s %s: %s is %q, want %q\n%s", c.env, c.file, row, got, want, out)
			}
		}
	}
}

// Over libnixl, the demo plays every mode that it plays over shm and tcp, with real processes. A process of each role
// is killed, every byte is verified, and no resource is left.
func TestDemoOverLibnixl(t *testing.T) {
	wantNIXL(t)
	for _, args := range [][]string{
		{},
		{"--bidirectional"},
		{"--role", "both", "--mode", "push"},
		{"--mode", "p2p-push"},
		{"--mode", "p2p-pull"},
		{"--mode", "push-reg"},
		{"--mode", "push-reg", "--prefill-tp", "1", "--decode-tp", "2"},
		{"--mode", "push", "--secure"},
		{"--mode", "pull", "--secure"},
	} {
		t.Run(strings.Join(args, " "), func(t *testing.T) {
			var out, stderr bytes.Buffer
			code := run(context.Background(), append([]string{"demo", "--plane", "nixl", "--requests", "16", "--json"}, args...),
				strings.NewReader(""), &out, &stderr)
			var all struct {
				Modes []struct {
					Plane         string           `json:"transfer_channel"`
					Completed     int64            `json:"completed"`
					BytesVerified int64            `json:"bytes_verified"`
					RestartMillis map[string]int64 `json:"restart_ms"`
				} `json:"modes"`
				OK bool `json:"ok"`
			}
			if err := json.Unmarshal(out.Bytes(), &all); err != nil || code != exitOK || !all.OK || len(all.Modes) == 0 {
				t.Fatalf("exit code %d, ok %v, %v:\n%s%s", code, all.OK, err, &out, &stderr)
			}
			for _, m := range all.Modes {
				if m.Plane != "nixl" || m.Completed != 16 || m.BytesVerified == 0 || len(m.RestartMillis) < 2 {
					t.Errorf("it did not do what it is for: %+v\n%s", m, &out)
				}
			}
		})
	}
}

func TestDemoOverLibnixlThatIsNotThere(t *testing.T) {
	t.Setenv(libnixl.LibraryVariable, "/nowhere/libnixl_capi.so")
	for _, mode := range []string{"push", "push-reg", "p2p-push"} {
		var out, stderr bytes.Buffer
		code := run(context.Background(), []string{"demo", "--plane", "nixl", "--mode", mode}, strings.NewReader(""), &out,
			&stderr)
		if code != exitFinding || !strings.Contains(stderr.String(), "nixl-cu12") ||
			!strings.Contains(stderr.String(), "/nowhere/libnixl_capi.so") {
			t.Errorf("%s: exit code %d, and it said %s%s", mode, code, &out, &stderr)
		}
	}
}
