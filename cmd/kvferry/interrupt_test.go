package main

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// If a signal ends a command before its work is done, the command says so and fails, so that a cancelled job does not
// pass.
func TestInterrupted(t *testing.T) {
	for _, c := range []struct {
		args string
		want string // text on standard output
	}{
		{"sim run --time 1h", "interrupted by SIGTERM after 0 seeds; asked for were 1h0m0s\nno promise was broken so far\n"},
		{"sim run --seeds 7 --shard 1/2", "after 0 seeds; asked for were 7 seeds, of which every 2. is this shard's\n"},
		{"sim run --seeds 7 --json", `"interrupted": "SIGTERM"`},
		{"sim run --time 1h --rare fail --profile calm", "interrupted by SIGTERM"},
		{"sim explore --scope push-late", "interrupted by SIGTERM: every promise held so far"},
		{"demo --no-crash --mode push --requests 1", ""},
		{"demo --no-crash --mode p2p --requests 1", ""},
		{"demo --no-crash --mode push-reg --requests 1", ""},
		{"doctor", ""},
	} {
		t.Run(c.args, func(t *testing.T) {
			ctx, cancel := context.WithCancelCause(t.Context())
			cancel(interruption{syscall.SIGTERM})
			var out, errs bytes.Buffer
			code := run(ctx, strings.Fields(c.args), strings.NewReader(""), &out, &errs)
			if code != 128+int(syscall.SIGTERM) || !strings.Contains(errs.String(), ": interrupted by SIGTERM\n") {
				t.Errorf("exit code %d and\n%s", code, &errs)
			}
			if !strings.Contains(out.String(), c.want) || strings.Contains(out.String(), "every promise held\n") {
				t.Errorf("it printed\n%s", &out)
			}
		})
	}
}

// A command that serves until a signal succeeds when the signal arrives.
func TestServersEndWell(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(interruption{syscall.SIGTERM})
	var out, errs bytes.Buffer
	if code := run(ctx, []string{"proxy", "--listen", "127.0.0.1:0", "--prefill", "http://127.0.0.1:1",
		"--decode", "http://127.0.0.1:2=127.0.0.1:3:4"}, nil, &out, &errs); code != exitOK {
		t.Errorf("exit code %d\n%s", code, &errs)
	}
}

// A real process runs a campaign and gets a real signal. The campaign file is a pipe, which the process opens after it
// has begun to handle signals.
func TestSIGTERMEndsACampaign(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	book := filepath.Join(t.TempDir(), "book.json")
	if err := syscall.Mkfifo(book, 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self, "sim", "run", "--time", "1h", "--json", "--workers", "1", "--continue", book)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	pipe, err := os.OpenFile(book, os.O_WRONLY, 0) // Waits until the campaign reads.
	if err == nil {
		err = cmd.Process.Signal(syscall.SIGTERM)
	}
	if err == nil {
		_, err = pipe.WriteString(`{"version":1,"profiles":{}}`)
	}
	if err == nil {
		err = pipe.Close()
	}
	if err != nil {
		t.Error(err)
		_ = cmd.Process.Kill()
	}
	err = cmd.Wait()
	var r campaignReport
	if code := cmd.ProcessState.ExitCode(); code != 143 {
		t.Errorf("it ended with %v, exit code %d\n%s%s", err, code, &out, &errs)
	} else if err := json.Unmarshal(out.Bytes(), &r); err != nil || r.Interrupted != "SIGTERM" || r.Requested != "1h0m0s" {
		t.Errorf("it printed %s, %v", &out, err)
	}
}

// If a shard of a campaign was interrupted, merging the shards fails.
func TestMergeTellsOfAnInterruption(t *testing.T) {
	args := []string{"sim", "merge"}
	for _, interrupted := range []string{"", "SIGTERM"} {
		r := campaignReport{Seconds: 1, Interrupted: interrupted, Requested: "7 seeds"}
		r.Profile = "calm"
		text, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		file := filepath.Join(t.TempDir(), "shard.json")
		if err := os.WriteFile(file, text, 0o600); err != nil {
			t.Fatal(err)
		}
		args = append(args, file)
	}
	var out, errs bytes.Buffer
	if code := run(t.Context(), args, nil, &out, &errs); code != exitFinding ||
		!strings.Contains(out.String(), "interrupted by SIGTERM after 0 seeds") {
		t.Errorf("exit code %d\n%s%s", code, &out, &errs)
	}
}
