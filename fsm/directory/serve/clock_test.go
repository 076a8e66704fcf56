package serve

import (
	"testing"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/directory"
	"github.com/kvferry/kvferry/protocol"
)

// A directory whose process was stopped for longer than the silence of its workers forgets none of them: it heard
// nothing because it was asleep. A worker that is silent once it is awake is forgotten in time.
func TestStoppedForAnHour(t *testing.T) {
	const silence = 80 * effects.Second
	r := newRig(t, func(c *Config) {
		c.Directory.Silence, c.Directory.Disconnected, c.Directory.SyncTimeout = silence, silence, silence
	})
	r.now = 1000
	went := map[string]effects.Time{}
	see := func() {
		for i := range r.out.Len() {
			if e, ok := r.out.At(i).(*effects.Observe); ok && e.Fact == effects.FactDirectory {
				if of := directory.NoteKind(e.ID); of == directory.WorkerSilent || of == directory.WorkerDisconnected {
					went[string(e.Why.Name)] = r.now
				}
			}
		}
	}
	register := func(name string, conn effects.Conn) {
		m := protocol.RegisterMsg{Worker: worker(name, 0), Listener: listener(), PeerInitURL: []byte("10.0.0.1:1"),
			Incarnation: protocol.UUID{1}}
		r.hears(effects.ChannelDirectory, conn, m.Append(nil))
	}
	beat := func(name string, conn effects.Conn) {
		m := protocol.HeartbeatMsg{Worker: worker(name, 0), Listener: listener(), PeerInitURL: []byte("10.0.0.1:1"),
			Incarnation: protocol.UUID{1}}
		r.hears(effects.ChannelHeartbeat, conn, m.Append(nil))
		see()
	}
	register("beats", 1)
	register("parted", 2)
	beat("beats", 1)
	r.step(&effects.ConnLost{Conn: 2})

	for range 3 { // Between two of its heartbeats, a third of the silence apart, the process is stopped.
		r.pass(r.now.Add(silence/protocol.HeartbeatsPerTimeout-effects.Second), see)
		r.now = r.now.Add(3600 * effects.Second)
		r.step(&effects.Tick{}) // The deadline of before is what the loop sees first when it goes on.
		see()
		if len(went) > 0 {
			t.Fatalf("%v were forgotten because the directory was stopped", went)
		}
		beat("beats", 1)
		beat("parted", 3)
		r.step(&effects.ConnLost{Conn: 3})
	}
	awake := r.now
	r.pass(r.now.Add(2*silence), see)
	for _, name := range []string{"beats", "parted"} {
		if late := went[name].Sub(awake.Add(silence)); went[name] == 0 || late < 0 || late > silence/pulsesWithin {
			t.Errorf("%s was forgotten %v after its time", name, late)
		}
	}
}

// A directory that knows nobody asks for no tick.
func TestIdleDirectory(t *testing.T) {
	r := newRig(t, nil)
	r.step(&effects.Tick{})
	if at, ok := r.Deadline(); ok {
		t.Errorf("wants a tick at %v", at)
	}
}
