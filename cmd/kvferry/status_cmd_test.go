package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kvferry/kvferry/runtime/control/reserve"
)

// kvferry status finds a running directory by its configuration, and fails when the directory has ended.
func TestStatusOfADirectory(t *testing.T) {
	var ports [3]uint16
	for i := range ports {
		p, err := reserve.Open("127.0.0.1")
		if err != nil {
			t.Fatal(err)
		}
		defer p.Close()
		ports[i] = p.Addr().Port
	}
	file := filepath.Join(t.TempDir(), "directory.yaml")
	text := fmt.Sprintf("controller_host: 127.0.0.1\ncontroller_monitor_ports: {pull: %d, reply: %d}\n"+
		"extra_config: {kvferry: {operator: {port: %d}}}\n", ports[0], ports[1], ports[2])
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	out, in := io.Pipe()
	ended := make(chan int, 1)
	go func() {
		ended <- run(ctx, []string{"directory", "--config", file, "--json"}, nil, in, io.Discard)
		in.Close()
	}()
	if lines := bufio.NewScanner(out); !lines.Scan() {
		t.Fatalf("the directory says nothing: exit code %d", <-ended)
	}
	status := func(args ...string) (code int, stdout, stderr string) {
		var o, e strings.Builder
		code = run(context.Background(), append([]string{"status"}, args...), nil, &o, &e)
		return code, o.String(), e.String()
	}
	if code, stdout, stderr := status("--config", file); code != exitOK || !strings.HasPrefix(stdout, "ready") ||
		!strings.Contains(stdout, "directory/loop") {
		t.Errorf("exit code %d: %s%s", code, stdout, stderr)
	}
	address := fmt.Sprintf("127.0.0.1:%d", ports[2])
	code, stdout, stderr := status("--address", address, "--json")
	var report statusReport
	if err := json.Unmarshal([]byte(stdout), &report); code != exitOK || err != nil || report.Directory["workers"] != 0.0 {
		t.Errorf("exit code %d, %v: %s%s", code, err, stdout, stderr)
	}
	stop()
	_, _ = io.Copy(io.Discard, out)
	<-ended
	if code, _, stderr := status("--address", address); code != exitFinding || !strings.Contains(stderr, "is the process running") {
		t.Errorf("exit code %d without a process: %s", code, stderr)
	}
	if code, _, stderr := status(); code != exitUsage || !strings.Contains(stderr, "--address") {
		t.Errorf("exit code %d without arguments: %s", code, stderr)
	}
}
