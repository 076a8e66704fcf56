package recording

import (
	"bytes"
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
	"github.com/kvferry/kvferry/snapshot"
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
	Files   int             `json:"files"` // that were replayed: File, and those of the same ring that continue it
	Build   buildinfo.Build `json:"build"` // the build that made the recording
	Node    string          `json:"node"`  // the incarnation
	Role    string          `json:"role"`
	Servers []string        `json:"servers"`
	// Before is the number of steps that the machine had made before the recording begins. If it is not 0, the recording
	// begins with a checkpoint.
	Before      uint64  `json:"before"`
	Steps       uint64  `json:"steps"` // steps whose effects were the same
	Effects     uint64  `json:"effects"`
	Seconds     float64 `json:"seconds"`     // the time of the node between the first event and the last
	Checkpoints int     `json:"checkpoints"` // further checkpoints at which the machine had the recorded state
	// End says why the recording ends.
	End string `json:"end"`
	// Diverged is the first step at which the effects differ; nil if there is none.
	Diverged *Divergence `json:"diverged,omitempty"`
	// Broken is an invariant that the machine breaks after the last step; empty if there is none.
	Broken string `json:"broken,omitempty"`
	// Failed is the assertion of the machine that failed in the last step, whose effects were not recorded: the node
	// failed there too, or its recording ended by chance at this step.
	Failed string `json:"failed,omitempty"`
	// Trace has the last events and effects of the replay, oldest first, as in the reports of failures.
	Trace []string `json:"trace"`
}

// A Divergence is a step that had other effects in the replay than in the recording.
type Divergence struct {
	Step     uint64   `json:"step"` // counted from the first step of the node, which is 1
	AtNS     int64    `json:"at_ns"`
	Seconds  float64  `json:"seconds"` // since the first event
	Event    string   `json:"event"`
	Recorded []string `json:"recorded"` // the kinds of the recorded effects
	Replayed []string `json:"replayed"` // the effects of the replay
	Panicked string   `json:"panicked,omitempty"`
	// State says that the machine had another state than a checkpoint before the step; the effects were not compared.
	State string `json:"state,omitempty"`
}

// Replay makes the machine of a recording again, gives it the recorded state if the recording begins with a checkpoint, and
// the recorded events, compares the effects of each step, and checks the invariants of the machine. If the file is one of a
// ring, the replay continues with the files that follow it. The error is nil if the recording could be read; the result
// then says whether the effects were the same.
func Replay(name string, o ReplayOptions) (*Result, error) {
	p, err := newReplayer(name, o)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	for next := name; next != ""; next = p.nextFile(next) {
		if err := p.replayFile(next); err != nil {
			return nil, fmt.Errorf("%s: %w", next, err)
		}
		p.result.Files++
	}
	p.result.Trace = p.trace.Lines()
	return p.result, nil
}

// A replayer replays the files of a recording.
type replayer struct {
	options ReplayOptions
	result  *Result
	machine *rank.Rank
	walker  *snapshot.Walker
	hasher  effectHasher
	trace   *postmortem.Trace
	out     effects.Effects
	checker invariantChecker

	origin     []byte // of the first file, as it was recorded
	sameLayout bool   // this build has the layout of the recorded states
	steps      uint64 // that the machine has made
	stepped    bool   // at least one step was replayed
	first      effects.Time
	over       bool // nothing more is replayed
}

// newReplayer makes the machine of a recording as it was when the node began.
func newReplayer(name string, o ReplayOptions) (*replayer, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	r, err := openReader(f, o.AnyBuild)
	if err != nil {
		return nil, err
	}
	from := r.origin
	p := &replayer{options: o, walker: newStateWalker(), hasher: newEffectHasher(), trace: postmortem.NewTrace(cmp.Or(o.TraceMax, 64)),
		origin: appendOrigin(nil, from), sameLayout: r.preamble.State == stateLayout(),
		result: &Result{File: name, Build: r.preamble.Build, Node: fmt.Sprintf("%x", from.Node), Role: from.Config.Role.String(),
			Servers: from.Servers}}
	if p.machine, err = rank.New(from.Config, from.Seed, from.Now); err != nil {
		return nil, fmt.Errorf("the recorded configuration cannot work: %w", err)
	}
	if p.machine.Incarnation() != from.Node {
		return nil, errors.New("the machine that is made of the recorded key has another identity than the node had")
	}
	return p, nil
}

// nextFile returns the file of the ring that follows the named one, and is empty if there is none.
func (p *replayer) nextFile(name string) string {
	base, number, ok := parseSegmentName(name)
	if p.over || !ok {
		return ""
	}
	next := segmentName(base, number+1)
	if _, err := os.Stat(next); err != nil {
		return ""
	}
	return next
}

// replayFile replays one file.
func (p *replayer) replayFile(name string) error {
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	r, err := openReader(f, p.options.AnyBuild)
	if err != nil {
		return err
	}
	if !bytes.Equal(appendOrigin(nil, r.origin), p.origin) {
		return errors.New("the file is of another run of the node than the one before it")
	}
	r.continued = p.result.Files > 0
	res := p.result
	for {
		s, err := r.next()
		if s.before != nil && (err == nil || errors.Is(err, io.EOF)) {
			if err := p.meetCheckpoint(s.before); err != nil {
				return err
			}
			if p.over {
				break
			}
		}
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return fmt.Errorf("behind step %d: %w", p.steps, err)
		}
		p.replayStep(&s)
		if !s.hasEffects {
			if _, err := r.next(); !errors.Is(err, io.EOF) {
				return fmt.Errorf("step %d has no effects, and the recording continues", p.steps)
			}
			p.over = true
		}
		if p.over {
			break
		}
	}
	switch {
	case res.Diverged != nil || res.Broken != "":
		res.End = "not reached"
	case r.end != "":
		res.End = r.end
	case r.cut:
		res.End = "the process was killed while it wrote"
	case r.continued:
		res.End = "the recording continues in the next file of the ring, which is not there"
	default:
		res.End = "the process was killed, or the node still runs"
	}
	return nil
}

// meetCheckpoint gives the machine the recorded state before its first step, and compares its state with the recorded one
// later.
func (p *replayer) meetCheckpoint(c *checkpoint) error {
	switch {
	case !p.stepped && !p.sameLayout:
		return fmt.Errorf("the recording begins with the state of a machine (a checkpoint), and the machine of this build (%v) has other "+
			"fields than that of the build that made the recording (%v): replay it with that build", buildinfo.Current(), p.result.Build)
	case !p.stepped:
		node := p.machine.Incarnation()
		if err := snapshot.Decode(p.walker, p.machine, c.state, stateMemoryMax(len(c.state))); err != nil {
			return fmt.Errorf("the checkpoint is damaged: %w", err)
		}
		if p.machine.Incarnation() != node {
			return errors.New("the checkpoint is of another node")
		}
		p.steps, p.result.Before = c.steps, c.steps
	case c.steps != p.steps:
		return fmt.Errorf("a checkpoint has %d steps before it, and %d were replayed", c.steps, p.steps)
	case !p.sameLayout:
	case !bytes.Equal(snapshot.Encode(p.walker, nil, p.machine), c.state):
		p.over = true
		p.result.Diverged = &Divergence{Step: p.steps + 1, AtNS: int64(c.last), Seconds: p.result.Seconds, Recorded: []string{},
			Replayed: []string{}, State: "the machine has another state than the recorded one, although all effects were the same"}
	default:
		p.result.Checkpoints++
	}
	return nil
}

// replayStep steps the machine, and compares the effects.
func (p *replayer) replayStep(s *step) {
	res := p.result
	if !p.stepped {
		p.first, p.stepped = s.at, true
	}
	res.Seconds = float64(s.at.Sub(p.first)) / 1e9
	p.out.Reset()
	p.trace.RecordEvent(s.at, s.event)
	panicked := stepMachine(p.machine, s, &p.out)
	p.steps++
	for i := range p.out.Len() {
		p.trace.RecordEffect(p.out.At(i))
	}
	if p.options.OnStep != nil {
		p.options.OnStep(s.at, s.event, &p.out)
	}
	switch {
	case !s.hasEffects: // The recording ends within this step.
		res.Failed = panicked
	case panicked == "" && p.hasher.hash(&p.out) == s.hash:
		res.Steps++
		res.Effects += uint64(p.out.Len())
		if res.Broken = p.checker.check(p.machine, s.at, p.steps); res.Broken != "" {
			res.Broken = fmt.Sprintf("after step %d: %s", p.steps, res.Broken)
			p.over = true
		}
	default:
		p.over = true
		res.Diverged = &Divergence{Step: p.steps, AtNS: int64(s.at), Seconds: res.Seconds, Event: eventLine(s), Recorded: []string{},
			Replayed: effectLines(&p.out), Panicked: panicked}
		for _, k := range s.kinds {
			res.Diverged.Recorded = append(res.Diverged.Recorded, k.String())
		}
	}
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
