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

// A directory prints its ports, then its counts, until its context ends.
func TestDirectorySaysWhatItServes(t *testing.T) {
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
	text := fmt.Sprintf("controller_host: 127.0.0.1\ncontroller_monitor_ports: {pull: %d, reply: %d}\n", ports[0],
		ports[1])
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	out, in := io.Pipe()
	code := make(chan int, 1)
	var log strings.Builder
	go func() {
		code <- run(ctx, []string{"directory", "--config", file, "--every", "1ms", "--json", "--ports",
			fmt.Sprintf(`{"pull": %d, "reply": %d, "heartbeat": %d}`, ports[0], ports[1], ports[2])}, nil, in, &log)
		in.Close()
	}()
	lines := bufio.NewScanner(out)
	next := func(into any) {
		t.Helper()
		if !lines.Scan() {
			t.Fatalf("it says no more: %v", lines.Err())
		}
		if err := json.Unmarshal(lines.Bytes(), into); err != nil {
			t.Fatalf("%s: %v", lines.Bytes(), err)
		}
	}
	var serving struct {
		Ports     []directoryPorts
		Heartbeat string
	}
	next(&serving)
	if len(serving.Ports) != 1 || serving.Ports[0] != (directoryPorts{ports[0], ports[1], ports[2]}) ||
		serving.Heartbeat != fmt.Sprintf("127.0.0.1:%d", ports[2]) {
		t.Errorf("it serves %+v", serving)
	}
	var figures directoryCounts
	next(&figures)
	if figures.Workers != 0 || figures.Bytes == 0 {
		t.Errorf("it knows %+v", figures)
	}
	stop()
	_, _ = io.Copy(io.Discard, out)
	if c := <-code; c != exitOK {
		t.Errorf("exit code %d: %s", c, log.String())
	}
}

func TestDirectoryRefusesWhatItCannotRead(t *testing.T) {
	for want, args := range map[string][]string{
		"no such file":                {"--config", filepath.Join(t.TempDir(), "none.yaml")},
		"there is none called replay": {"--ports", `{"pull": 1, "replay": 2}`},
		"give 0 or more":              {"--every", "-1s"},
	} {
		var out, errs strings.Builder
		if code := run(t.Context(), append([]string{"directory"}, args...), nil, &out, &errs); code != exitUsage ||
			!strings.Contains(errs.String(), want) {
			t.Errorf("%v: exit code %d: %s", args, code, errs.String())
		}
	}
}
