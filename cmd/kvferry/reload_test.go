package main

import (
	"bufio"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
)

// A real node reads its configuration again on SIGHUP: what may change is in force, what needs a restart is named, and a
// broken file changes nothing.
func TestReloadOnSIGHUP(t *testing.T) {
	file := nodeConfig(t)
	original, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	write := func(text string) {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("pd_shutdown_timeout_sec: 600\n" + string(original))
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self, "node", "--config", file)
	stderr, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	changed := "pd_shutdown_timeout_sec: 7\n" + string(original) + "    put_timeout: 12\n    tables: {peers: 100}\n"
	steps := []struct {
		waitFor string
		write   string // empty: nothing
		signal  syscall.Signal
	}{
		{"msg=serving", changed, syscall.SIGHUP},
		{"was read again", changed + "    no_such_key: 1\n", syscall.SIGHUP},
		{"was not read again", "", syscall.SIGTERM},
	}
	var log strings.Builder
	for lines := bufio.NewScanner(stderr); lines.Scan(); {
		log.WriteString(lines.Text() + "\n")
		if len(steps) == 0 || !strings.Contains(lines.Text(), steps[0].waitFor) {
			continue
		}
		if steps[0].write != "" {
			write(steps[0].write)
		}
		if err := cmd.Process.Signal(steps[0].signal); err != nil {
			t.Fatal(err)
		}
		steps = steps[1:]
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("it ended with %v", err)
	}
	for _, want := range []string{
		`"a changed value of the configuration is in force" key=pd_shutdown_timeout_sec from=600 to=7`,
		`"a changed value of the configuration is in force" key=extra_config.kvferry.put_timeout from="" to=12`,
		`"a changed value of the configuration needs a restart" key=extra_config.kvferry.tables.peers from="" to=100`,
		`no_such_key`, `msg=draining at_most=7s`,
	} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("%q is missing", want)
		}
	}
	if t.Failed() {
		t.Log(log.String())
	}
}
