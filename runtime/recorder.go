package runtime

import (
	"fmt"
	"time"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank"
	"github.com/kvferry/kvferry/runtime/recording"
)

// recordingTimeout bounds the time for which the end of a node waits for the file of its recording.
const recordingTimeout = 5 * time.Second

// startRecording begins the recording of the machine that is about to be made, if one is configured.
func (b *nodeBuilder) startRecording(machine *rank.Config, seed uint64, at effects.Time, id effects.Incarnation) error {
	if b.cfg.Recorder.Dir == "" {
		return nil
	}
	var servers []string
	for _, s := range b.driver.control.Servers() {
		servers = append(servers, fmt.Sprintf("%v %s:%d", s.Channel, s.Addr.Host, s.Addr.Port))
	}
	r, err := recording.Start(id, machine, seed, at, servers,
		recording.Options{Dir: b.cfg.Recorder.Dir, BytesMax: b.cfg.Recorder.Bytes, Log: b.driver.log})
	if err != nil {
		return openError("the recording of the state machine", "make recorder.dir a folder that this process can write to, or "+
			"remove it", err)
	}
	b.recorder = r
	b.driver.log.Info("the state machine is recorded", "file", r.Status().File, "bytes_max", b.cfg.Recorder.Bytes)
	return nil
}

// Recording returns how far the recording of the node's state machine is (recorder.dir). It reports false if nothing is
// recorded.
func (n *Node) Recording() (recording.Status, bool) {
	if n.loop.recorder == nil {
		return recording.Status{}, false
	}
	return n.loop.recorder.Status(), true
}
