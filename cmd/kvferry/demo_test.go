package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/kvferry/kvferry/cmd/kvferry/internal/agent"
	"github.com/kvferry/kvferry/cmd/kvferry/internal/demo"
	"github.com/kvferry/kvferry/runtime/libnixl/nixlproc"
)

// playDemo runs the demo, which must succeed, decodes the report into all, and returns the standard error.
func playDemo(t *testing.T, all any, args ...string) string {
	t.Helper()
	var out, stderr bytes.Buffer
	code := run(context.Background(), append([]string{"demo", "--json"}, args...), strings.NewReader(""), &out, &stderr)
	if err := json.Unmarshal(out.Bytes(), all); err != nil || code != exitOK {
		t.Fatalf("exit code %d, %v:\n%s%s", code, err, &out, &stderr)
	}
	return out.String()
}

// TestMain lets the test's binary be the demo's processes, because the demo starts its own executable again.
func TestMain(m *testing.M) {
	if nixlproc.IsChild() {
		main()
	}
	children := []string{"node", "demo-proxy", "directory", "doctor", "proxy", "sim"}
	if len(os.Args) > 1 && slices.Contains(children, os.Args[1]) {
		main()
	}
	// Under the race detector, each process would otherwise wait a second at its end for further races.
	if err := os.Setenv("GORACE", strings.TrimSpace(os.Getenv("GORACE")+" atexit_sleep_ms=0")); err != nil {
		panic(err)
	}
	goleak.VerifyTestMain(m)
}

func TestDemoMovesRealBytesBetweenProcesses(t *testing.T) {
	requests := 16
	if testing.Short() {
		requests = 6
	}
	for _, plane := range []string{"shm", "tcp"} {
		t.Run(plane, func(t *testing.T) {
			var all demo.Summary[*demo.Report]
			out := playDemo(t, &all, "--plane", plane, "--layers", "2", "--requests", strconv.Itoa(requests))
			if len(all.Modes) != 4 { // Without an NPU, the offload mode is not played.
				t.Errorf("not all modes were played:\n%s", out)
			}
			for _, r := range all.Modes {
				if r.Completed != requests || r.BytesWrong != 0 || r.BytesVerified == 0 {
					t.Errorf("%s did not do what it is for:\n%s", r.Mode, out)
				}
				if r.RestartMillis["decode-1"] == 0 || r.RestartMillis["prefill"] == 0 {
					t.Errorf("%s: killed and back were %v, want one of each side", r.Mode, r.RestartMillis)
				}
				most, lends := r.PrefillPages*98/100, r.Mode != demo.Push && r.Mode != demo.Layerwise
				if (r.LeasedMax > 0) != lends || r.LeasedMax > most {
					t.Errorf("%s leased up to %d pages, the limit is %d", r.Mode, r.LeasedMax, most)
				}
				if layers := r.Mode == demo.Layerwise; (r.Saved > 0) != layers || (r.Preempted > 0) != layers {
					t.Errorf("%s saved %d layers, and %d prefills were preempted", r.Mode, r.Saved, r.Preempted)
				}
				if delays := r.Mode == demo.PullDelay || r.Mode == demo.PullDelayOffload; (r.StagedMax > 0) != delays ||
					(r.StagingPages > 0) != delays {
					t.Errorf("%s staged up to %d pages, the limit is %d", r.Mode, r.StagedMax, r.StagingPages)
				}
			}
		})
	}
}

// Nodes that are prefill and decode nodes at once form a ring. Two nodes are killed while they send and receive.
func TestDemoOfBothSides(t *testing.T) {
	const requests = 8
	mode, modes := "all", 4
	if testing.Short() {
		mode, modes = "push", 1
	}
	var all demo.Summary[*demo.Report]
	out := playDemo(t, &all, "--role", "both", "--mode", mode, "--layers", "1", "--requests", strconv.Itoa(requests))
	if len(all.Modes) != modes {
		t.Errorf("want %d modes:\n%s", modes, out)
	}
	for _, r := range all.Modes {
		if !r.Ring || r.Completed != requests || r.BytesWrong != 0 || r.BytesVerified == 0 {
			t.Errorf("%s did not do what it is for:\n%s", r.Mode, out)
		}
		if r.RestartMillis["node-2"] == 0 || r.RestartMillis["node-0"] == 0 {
			t.Errorf("%s: killed and back were %v, want two of the ring", r.Mode, r.RestartMillis)
		}
		layers := r.Mode == demo.Layerwise
		if (r.LeasedMax > 0) != (r.Mode != demo.Push && !layers) || r.LeasedMax > r.PrefillPages {
			t.Errorf("%s leased up to %d pages, an engine may have %d", r.Mode, r.LeasedMax, r.PrefillPages)
		}
		if (r.Saved > 0) != layers || (r.Preempted > 0) != layers {
			t.Errorf("%s saved %d layers, and %d prefills were preempted", r.Mode, r.Saved, r.Preempted)
		}
	}
}

// Decode nodes keep the chunks that were read, and prefill nodes recall them before they compute. This is played with
// separate roles and in a ring, in which processes are killed while they recall and serve recalls.
func TestDemoOfRecalls(t *testing.T) {
	requests, roles := 16, []string{"each", "both"}
	if testing.Short() {
		requests, roles = 8, []string{"both"}
	}
	for _, role := range roles {
		var all demo.Summary[*demo.Report]
		out := playDemo(t, &all, "--bidirectional", "--role", role, "--mode", "push", "--layers", "1", "--requests", strconv.Itoa(requests))
		if len(all.Modes) != 1 {
			t.Fatalf("not one mode was played:\n%s", out)
		}
		if r := all.Modes[0]; !r.Recall || r.Recalled == 0 || r.BytesWrong != 0 || len(r.RestartMillis) != 2 {
			t.Errorf("%s did not do what it is for:\n%s", role, out)
		}
	}
}

func TestDemoText(t *testing.T) {
	var out, stderr bytes.Buffer
	if code := run(context.Background(), []string{"demo", "--requests", "4", "--layers", "1", "--no-crash"}, strings.NewReader(""), &out,
		&stderr); code != exitOK {
		t.Fatalf("exit code %d\n%s%s", code, &out, &stderr)
	}
	for _, want := range []string{"push", "pull", "pages at a time", "two batches of 8", "4 completed, 0 lost",
		"0 bytes were wrong", "every byte is correct and no page is pinned"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is missing in\n%s", want, &out)
		}
	}
}

func TestDemoWrongCalls(t *testing.T) {
	for _, args := range [][]string{
		{"demo", "--plane", "rdma"}, {"demo", "--mode", "p2p-carry"}, {"demo", "--role", "sender"},
		{"demo", "--directories", "1"}, {"demo", "--mode", "p2p", "--directories", "0"},
		{"demo", "--mode", "p2p", "--pages", "9"}, {"demo", "--mode", "p2p", "--role", "sender"},
		{"demo", "--mode", "p2p", "--bidirectional"}, {"demo", "--mode", "p2p", "--device", "npu"},
		{"demo", "--mode", "pull-delay+offload"}, {"demo", "--role", "both", "--mode", "pull-delay+offload"},
		{"demo", "--bidirectional", "--mode", "pull-delay"},
		{"demo", "--soak", "-1"}, {"demo", "--soak", "2", "--chaos", "1m"}, {"demo", "--soak", "2", "--mode", "p2p"},
		{"demo", "--chaos", "-1s"}, {"demo", "--chaos-seed", "2"}, {"demo", "--chaos", "1m", "--mode", "p2p"},
		{"demo", "--chaos", "1m", "--no-crash"}, {"demo", "--chaos", "1m", "--tour"},
		{"demo", "--layers", "0"}, {"demo", "--layers", "5"}, {"demo", "--mode", "p2p", "--layers", "2"},
		{"demo", "--mode", "push-reg", "--layers", "2"}, {"demo", "--requests", "0"}, {"demo", "--concurrency", "0"},
		{"demo", "--speed", "-1"}, {"demo", "--trace", "testdata/there-is-none"}, {"node"},
		{"node", "--config", "testdata/config/broken.yaml"},
		{"node", "--config", "testdata/there-is-none"},
	} {
		var out, stderr bytes.Buffer
		if code := run(context.Background(), args, strings.NewReader(""), &out, &stderr); code != exitUsage {
			t.Errorf("%v: exit code %d, want %d\n%s", args, code, exitUsage, &stderr)
		}
	}
}

// SIGTERM drains a node: a real process serves, receives SIGTERM, and ends with exit code 0.
func TestNodeEndsOnSIGTERM(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self, "node", "--config", nodeConfig(t))
	stderr, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var log strings.Builder
	for lines := bufio.NewScanner(stderr); lines.Scan(); {
		log.WriteString(lines.Text() + "\n")
		if strings.Contains(lines.Text(), "msg=serving") {
			if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := cmd.Wait(); err != nil || !strings.Contains(log.String(), "msg=stopped") {
		t.Errorf("it ended with %v and said:\n%s", err, &log)
	}
}

// A second SIGTERM ends a drain at once: the drain of a real process is blocked by a proxy that does not run.
func TestSecondSIGTERMEndsADrain(t *testing.T) {
	file := nodeConfig(t)
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, append([]byte("pd_shutdown_timeout_sec: 600\n"), text...), 0o600); err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self, "node", "--config", file, "--commands")
	stderr, errOf := cmd.StderrPipe()
	stdin, errIn := cmd.StdinPipe()
	stdout, errOut := cmd.StdoutPipe()
	if err := errors.Join(errOf, errIn, errOut, cmd.Start()); err != nil {
		t.Fatal(err)
	}
	defer stdin.Close()
	// A put to an address where no node listens fails at once, and the proxy must be notified.
	fmt.Fprintln(stdin, `{"id":1,"op":"put","peer":{"host":"127.0.0.1","init_port":1,"alloc_port":1},"request":"r",`+
		`"keys":["m@1@0@a1@half"],"last":true}`)
	for d, r := json.NewDecoder(stdout), (agent.Response{}); r.ID != 1; {
		if err := d.Decode(&r); err != nil {
			t.Fatal(err)
		}
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	var log strings.Builder
	lines := bufio.NewScanner(stderr)
	for lines.Scan() && !strings.Contains(lines.Text(), "msg=draining") {
		log.WriteString(lines.Text() + "\n")
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for lines.Scan() {
			log.WriteString(lines.Text() + "\n")
		}
	}()
	// It may take a moment until the process ignores further signals.
	for again := time.NewTicker(10 * time.Millisecond); ; {
		select {
		case <-ended:
			again.Stop()
			err := cmd.Wait()
			if status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); !ok || status.Signal() != syscall.SIGTERM {
				t.Errorf("it ended with %v and said:\n%s", err, &log)
			}
			return
		case <-again.C:
			_ = cmd.Process.Signal(syscall.SIGTERM)
		}
	}
}

// nodeConfig returns a file with the sender of the configuration tests and the layout that a node without an engine
// needs.
func nodeConfig(t *testing.T) (file string) {
	t.Helper()
	data, err := os.ReadFile("testdata/config/sender.yaml")
	if err != nil {
		t.Fatal(err)
	}
	file = filepath.Join(t.TempDir(), "sender.yaml")
	data = append(data,
		"extra_config:\n  kvferry:\n    layout: {num_layers: 4, num_kv_heads: 2, head_size: 64, dtype: half}\n"...)
	if err := os.WriteFile(file, data, 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// A node with --commands answers each line, also lines that are no request, and stops at the end of its input.
func TestNodeCommands(t *testing.T) {
	var out, stderr bytes.Buffer
	in := strings.NewReader("nonsense\n" + `{"id":2,"op":"stats"}` + "\n" + `{"id":3,"op":"dance"}` + "\n" +
		`{"id":4,"op":"put"}` + "\n" + `{"id":5,"op":"get","keys":["m@1@0@a1@half"]}` + "\n")
	if code := run(context.Background(), []string{"node", "--config", nodeConfig(t), "--commands"}, in, &out,
		&stderr); code != exitOK {
		t.Fatalf("exit code %d\n%s", code, &stderr)
	}
	codes := map[uint64][]string{}
	for d := json.NewDecoder(&out); d.More(); {
		var r agent.Response
		if err := d.Decode(&r); err != nil {
			t.Fatal(err)
		}
		codes[r.ID] = append(codes[r.ID], r.Code)
	}
	// Two responses have no ID: the report that the node serves, and the error of a malformed line.
	for id, want := range map[uint64][]string{0: {"ok", "malformed"}, 2: {"ok"}, 3: {"invalid"}, 4: {"invalid"},
		5: {"unsupported"}} {
		if !slices.Equal(codes[id], want) {
			t.Errorf("request %d: got %v, want %v", id, codes[id], want)
		}
	}
}

// A node logs the notes about its configuration, because the user may not have run config check.
func TestNodeTellsNotes(t *testing.T) {
	file := nodeConfig(t)
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	noted := bytes.Replace(text, []byte("pd_buffer_device: cpu"), []byte("pd_buffer_device: cuda:1"), 1)
	if err := os.WriteFile(file, noted, 0o600); err != nil {
		t.Fatal(err)
	}
	var out, stderr bytes.Buffer
	if code := run(context.Background(), []string{"node", "--config", file, "--commands"}, strings.NewReader(""), &out,
		&stderr); code != exitOK {
		t.Fatalf("exit code %d\n%s", code, &stderr)
	}
	if !strings.Contains(stderr.String(), "level=WARN") || !strings.Contains(stderr.String(), "cuda:1") {
		t.Errorf("got %s", &stderr)
	}
}
