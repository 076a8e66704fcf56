package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/kvferry/kvferry/runtime/recording"
)

// startRecordedNode runs a real node with a recorder in a process of its own, lets it work for its engine, and returns the
// process and the folder of its recordings.
func startRecordedNode(t *testing.T) (cmd *exec.Cmd, dir string) {
	t.Helper()
	config := nodeConfig(t)
	dir = t.TempDir()
	text, err := os.ReadFile(config)
	if err != nil {
		t.Fatal(err)
	}
	text = bytes.Replace(text, []byte("  kvferry:\n"), fmt.Appendf(nil, "  kvferry:\n    recorder: {dir: %s}\n", dir), 1)
	if err := os.WriteFile(config, text, 0o600); err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd = exec.Command(self, "node", "--config", config, "--commands")
	stdin, errIn := cmd.StdinPipe()
	stdout, errOut := cmd.StdoutPipe()
	if err := errors.Join(errIn, errOut, cmd.Start()); err != nil {
		t.Fatal(err)
	}
	fmt.Fprintln(stdin, `{"id":1,"op":"put","peer":{"host":"127.0.0.1","init_port":1,"alloc_port":1},"request":"r",`+
		`"keys":["m@1@0@a1@half"],"last":true}`)
	if !bufio.NewScanner(stdout).Scan() {
		t.Fatal("the node has not answered")
	}
	return cmd, dir
}

// SIGUSR1 saves the recording of a running node, which goes on.
func TestRecordingOnSignal(t *testing.T) {
	cmd, dir := startRecordedNode(t)
	defer func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}()
	if err := cmd.Process.Signal(syscall.SIGUSR1); err != nil {
		t.Fatal(err)
	}
	for begin := time.Now(); ; time.Sleep(50 * time.Millisecond) {
		names, err := filepath.Glob(filepath.Join(dir, "*-signal-*.kvrec"))
		if err != nil || time.Since(begin) > time.Minute {
			t.Fatalf("after a minute there is no saved recording: %v", err)
		}
		if len(names) == 0 {
			continue
		}
		page := filepath.Join(t.TempDir(), "page.html")
		var out, errs bytes.Buffer
		if code := run(t.Context(), []string{"sim", "replay", "--recording", names[0], "--html", page}, nil, &out, &errs); code != exitOK ||
			!strings.Contains(out.String(), ": the same effects\n") {
			t.Errorf("exit code %d\n%s%s", code, out.String(), errs.String())
		}
		if text, err := os.ReadFile(page); err != nil || !bytes.Contains(text, []byte("put")) {
			t.Errorf("the page does not have the put: %v", err)
		}
		if err := cmd.Process.Signal(syscall.Signal(0)); err != nil {
			t.Errorf("the node has ended: %v", err)
		}
		return
	}
}

// recordKilledNode runs a node until some steps are in its recording, kills it, and returns the file.
func recordKilledNode(t *testing.T) string {
	t.Helper()
	cmd, dir := startRecordedNode(t)
	for begin := time.Now(); ; time.Sleep(50 * time.Millisecond) {
		names, err := filepath.Glob(filepath.Join(dir, "*.kvrec"))
		if err != nil || len(names) != 1 {
			t.Fatalf("recordings %v, %v", names, err)
		}
		if r, err := recording.Replay(names[0], recording.ReplayOptions{}); err != nil {
			t.Fatal(err)
		} else if r.Steps > 1 {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
			return names[0]
		} else if time.Since(begin) > time.Minute {
			t.Fatalf("after a minute: %+v", r)
		}
	}
}

// The recording of a node that was killed is replayed with the same effects.
func TestReplayOfARecording(t *testing.T) {
	file := recordKilledNode(t)
	var out, errs bytes.Buffer
	if code := run(t.Context(), []string{"sim", "replay", "--recording", file}, nil, &out, &errs); code != exitOK {
		t.Fatalf("exit code %d\n%s%s", code, out.String(), errs.String())
	}
	for _, want := range []string{": the same effects\n", "the process was killed", `{"event":"Command"`, "seconds", ", sender\n"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, out.String())
		}
	}
	out.Reset()
	if code := run(t.Context(), []string{"sim", "replay", "--recording", file, "--json", "--last", "1"}, nil, &out, &errs); code != exitOK {
		t.Fatalf("exit code %d\n%s%s", code, out.String(), errs.String())
	}
	var r recording.Result
	if err := json.Unmarshal(out.Bytes(), &r); err != nil || r.Steps < 2 || r.File != file || len(r.Trace) != 1 || r.Diverged != nil {
		t.Errorf("%s: %+v, %v", out.String(), r, err)
	}
}

// What cannot be replayed is refused with a reason.
func TestReplayOfARecordingIsRefused(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, []byte("text\x1b[31m"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args []string
		said string
	}{
		{[]string{"--recording", file}, "not a recording of kvferry"},
		{[]string{"--recording", file + ".missing"}, "no such file"},
		{[]string{"--recording", file, "--seed", "1"}, "--seed is not for recordings"},
		{[]string{"--recording", file, "--last", "0"}, "--last is 0"},
		{[]string{"--any-build", "--seed", "1"}, "need --recording"},
	} {
		var out, errs bytes.Buffer
		code := run(t.Context(), append([]string{"sim", "replay"}, c.args...), nil, &out, &errs)
		if code != exitUsage || !strings.Contains(errs.String(), c.said) {
			t.Errorf("%v: exit code %d, %s", c.args, code, errs.String())
		}
	}
}

// A divergence and a failed assertion are told with their step.
func TestTextOfARecording(t *testing.T) {
	r := &recording.Result{Node: "5f10", Role: "sender", Steps: 41, Effects: 7, Seconds: 1.5,
		Trace: []string{`{"event":"Tick"}`, `{"effect":"Reply"}`},
		Diverged: &recording.Divergence{Step: 42, Seconds: 1.5, Event: `{"event":"Tick"}`, Recorded: []string{"Grant", "Reply"},
			Replayed: []string{`{"effect":"Reply"}`}, Panicked: "BUG: x"}}
	const want = `node   5f10, sender
build  kvferry , commit unknown,  ` + `
last events and effects:
  {"event":"Tick"}
    {"effect":"Reply"}
step 42, 1.500000 s after the first, has other effects than the recording:
  event     {"event":"Tick"}
  recorded  2 effects: Grant, Reply
  replayed  1 effects:
    {"effect":"Reply"}
    and an assertion failed: BUG: x
the 41 steps before had the same effects
`
	if got := recordingText(r); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	r.Diverged, r.Failed = nil, "BUG: y"
	if got := recordingText(r); !strings.HasSuffix(got, "the same effects, and then an assertion failed in the last step: BUG: y\n") {
		t.Error(got)
	}
}
