package operator

import (
	"errors"
	"net/http"

	"github.com/kvferry/kvferry/runtime"
	"github.com/kvferry/kvferry/runtime/recording"
)

// recordingAnswer is what the page about the recording of a node's state machine has.
type recordingAnswer struct {
	File      string   `json:"file"`       // the newest file of the ring
	Files     int      `json:"files"`      // of the ring
	Bytes     uint64   `json:"bytes"`      // of all these files
	Steps     uint64   `json:"steps"`      // that were recorded since the start
	FirstStep uint64   `json:"first_step"` // the steps before the first one that the ring still has
	Saved     []string `json:"saved"`      // the saved recordings, oldest first
	Ended     string   `json:"ended,omitempty"`
}

// serveRecording answers how far the recording of a node's state machine is.
func serveRecording(w http.ResponseWriter, n *runtime.Node) {
	s, on := n.Recording()
	if !on {
		http.Error(w, runtime.ErrNotRecorded.Error(), http.StatusNotFound)
		return
	}
	writeJSON(w, recordingAnswer{File: s.File, Files: s.Files, Bytes: s.Bytes, Steps: s.Steps, FirstStep: s.FirstStep,
		Saved: append([]string{}, s.Saved...), Ended: s.Ended})
}

// savedAnswer is the answer to a request to save the recording.
type savedAnswer struct {
	File string `json:"file"`
}

// saveRecording saves the recording of a node's state machine, and answers with the name of the file.
func saveRecording(w http.ResponseWriter, n *runtime.Node) {
	name, err := n.SaveRecording(recording.OnRequest)
	switch {
	case errors.Is(err, runtime.ErrNotRecorded):
		http.Error(w, err.Error(), http.StatusNotFound)
	case errors.Is(err, recording.ErrBusy):
		http.Error(w, err.Error(), http.StatusConflict)
	case err != nil:
		http.Error(w, err.Error(), http.StatusInternalServerError)
	default:
		writeJSON(w, savedAnswer{File: name})
	}
}
