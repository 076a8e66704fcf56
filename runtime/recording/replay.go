package recording

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank"
	"github.com/kvferry/kvferry/runtime/buildinfo"
	"github.com/kvferry/kvferry/runtime/internal/postmortem"
)

// ReplayOptions configures Replay.
type ReplayOptions struct {
	AnyBuild bool // replay recordings of other builds too, if this build can read them
	// TraceMax is the number of the last events and effects in Result.Trace, rounded up to a power of two; 0: 64.
	TraceMax int
	// OnStep is called after each step with what the machine was given and what it did, before the effects are compared.
	// The arguments are reused. nil: not called.
	OnStep func(at effects.Time, event effects.Event, out *effects.Effects)
}

// A Result is what a replay found.
type Result struct {
	File    string          `json:"file"`
	Build   buildinfo.Build `json:"build"` // the build that made the recording
	Node    string          `json:"node"`  // the incarnation
	Role    string          `json:"role"`
	Servers []string        `json:"servers"`
	Steps   uint64          `json:"steps"` // steps whose effects were the same
	Effects uint64          `json:"effects"`
	Seconds float64         `json:"seconds"` // the time of the node between the first event and the last
	// End says why the recording ends.
	End string `json:"end"`
	// Diverged is the first step at which the effects differ; nil if there is none.
	Diverged *Divergence `json:"diverged,omitempty"`
	// Failed is the assertion of the machine that failed in the last step, whose effects were not recorded: the node
	// failed there too, or its recording ended by chance at this step.
	Failed string `json:"failed,omitempty"`
	// Trace has the last events and effects of the replay, oldest first, as in the reports of failures.
	Trace []string `json:"trace"`
}

// A Divergence is a step that had other effects in the replay than in the recording.
type Divergence struct {
	Step     uint64   `json:"step"` // counted from 1
	AtNS     int64    `json:"at_ns"`
	Seconds  float64  `json:"seconds"` // since the first event
	Event    string   `json:"event"`
	Recorded []string `json:"recorded"` // the kinds of the recorded effects
	Replayed []string `json:"replayed"` // the effects of the replay
	Panicked string   `json:"panicked,omitempty"`
}

// Replay makes the machine of a recording again, gives it the recorded events, and compares the effects of each step. The
// error is nil if the recording could be read; the result then says whether the effects were the same.
func Replay(name string, o ReplayOptions) (*Result, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	r, err := openReader(f, o.AnyBuild)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	res, err := replay(r, o)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	res.File = name
	return res, nil
}

func replay(r *fileReader, o ReplayOptions) (*Result, error) {
	from := r.origin
	res := &Result{Build: r.preamble.Build, Node: fmt.Sprintf("%x", from.Node), Role: from.Config.Role.String(), Servers: from.Servers}
	m, err := rank.New(from.Config, from.Seed, from.Now)
	if err != nil {
		return nil, fmt.Errorf("the recorded configuration cannot work: %w", err)
	}
	if m.Incarnation() != from.Node {
		return nil, errors.New("the machine that is made of the recorded key has another identity than the node had")
	}
	trace, hasher := postmortem.NewTrace(cmp.Or(o.TraceMax, 64)), newEffectHasher()
	defer func() { res.Trace = trace.Lines() }()
	var out effects.Effects
	var first effects.Time
	for n := uint64(1); ; n++ {
		s, err := r.next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("behind step %d: %w", n-1, err)
		}
		if n == 1 {
			first = s.at
		}
		res.Seconds = float64(s.at.Sub(first)) / 1e9
		out.Reset()
		trace.RecordEvent(s.at, s.event)
		panicked := stepMachine(m, &s, &out)
		for i := range out.Len() {
			trace.RecordEffect(out.At(i))
		}
		if o.OnStep != nil {
			o.OnStep(s.at, s.event, &out)
		}
		if !s.hasEffects {
			// The recording ends within this step.
			res.Failed = panicked
			if _, err := r.next(); !errors.Is(err, io.EOF) {
				return nil, fmt.Errorf("step %d has no effects, and the recording continues", n)
			}
			break
		}
		if panicked == "" && hasher.hash(&out) == s.hash {
			res.Steps++
			res.Effects += uint64(out.Len())
			continue
		}
		res.Diverged = &Divergence{Step: n, AtNS: int64(s.at), Seconds: res.Seconds, Event: eventLine(&s), Recorded: []string{},
			Replayed: effectLines(&out), Panicked: panicked}
		for _, k := range s.kinds {
			res.Diverged.Recorded = append(res.Diverged.Recorded, k.String())
		}
		break
	}
	switch {
	case res.Diverged != nil:
		res.End = "not reached"
	case r.end != "":
		res.End = r.end
	case r.cut:
		res.End = "the process was killed while it wrote"
	default:
		res.End = "the process was killed, or the node still runs"
	}
	return res, nil
}

// stepMachine steps the machine, and returns the text of a failed assertion.
func stepMachine(m *rank.Rank, s *step, out *effects.Effects) (panicked string) {
	defer func() {
		if v := recover(); v != nil {
			panicked = fmt.Sprint(v)
		}
	}()
	m.Step(s.at, s.event, out)
	return ""
}

// eventLine returns an event as one line.
func eventLine(s *step) string {
	trace := postmortem.NewTrace(1)
	trace.RecordEvent(s.at, s.event)
	line := strings.Join(trace.Lines(), "")
	if c, ok := s.event.(*effects.Command); ok {
		line += fmt.Sprintf(" %T", c.Body)
	}
	return line
}

// effectLines returns effects as lines.
func effectLines(out *effects.Effects) []string {
	trace := postmortem.NewTrace(max(1, out.Len()))
	for i := range out.Len() {
		trace.RecordEffect(out.At(i))
	}
	return slices.Concat([]string{}, trace.Lines())
}
