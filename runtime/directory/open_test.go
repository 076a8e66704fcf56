package directory_test

import (
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/kvferry/kvferry/runtime"
	"github.com/kvferry/kvferry/runtime/config"
	"github.com/kvferry/kvferry/runtime/control/zmq"
	"github.com/kvferry/kvferry/runtime/directory"
)

// The bounds of the configuration file are those that the machine accepts.
func TestFileBoundsMatchMachine(t *testing.T) {
	for _, bounds := range []string{
		"instances: 1048576, workers: 1048576, workers_of_one: 1048576, holders: 65534, chunks: 2147483648, prefix: 4096, " +
			"peers: 256, batch_hashes: 65536, syncs: 4096, sync_timeout: 1h",
		"instances: 1, workers: 1, holders: 2, chunks: 1, prefix: 1, peers: 1, batch_hashes: 1, syncs: 1, sync_timeout: 1",
	} {
		d := open(t, freePorts(t, 1)+"extra_config: {kvferry: {directory: {"+bounds+"}}}\n")
		if d.Heartbeat() == "" || len(d.Ports()) != 1 {
			t.Errorf("it serves %+v and %s", d.Ports(), d.Heartbeat())
		}
		shut(t, d)
	}
}

// Workers get an address under which they reach the heartbeat port, or none if there is no such port.
func TestHeartbeatsHaveAnAddress(t *testing.T) {
	for file, want := range map[string]string{
		"controller_host: 127.0.0.1\n": "127.0.0.1:",
		"extra_config: {kvferry: {directory: {advertise_host: directory.example}}}\n": "directory.example:",
		"": ".",
	} {
		monitors := freePorts(t, 1)
		d := open(t, file+monitors[strings.Index(monitors, "\n")+1:])
		if !strings.Contains(d.Heartbeat(), want) || strings.HasPrefix(d.Heartbeat(), "0.") {
			t.Errorf("%q: heartbeats go to %q", file, d.Heartbeat())
		}
	}
}

func TestPortThatIsTaken(t *testing.T) {
	file := freePorts(t, 1)
	open(t, file)
	cfg, err := config.ParseDirectory("f", []byte(file), nil)
	if err != nil {
		t.Fatal(err)
	}
	d, err := directory.Open(cfg, zmq.Config{}.Opener(), slog.New(slog.DiscardHandler))
	var e *runtime.Error
	if d != nil || !errors.As(err, &e) || !strings.Contains(err.Error(), "choose another port") {
		t.Errorf("%v, want an error that says what to do", err)
	}
}
