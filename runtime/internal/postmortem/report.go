package postmortem

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/runtime/buildinfo"
)

// A Failure describes a failed assertion.
type Failure struct {
	Node       effects.Incarnation
	Message    string           // the text of the failed assertion
	Stack      []string         // functions and lines, innermost first
	Event      effects.Event    // the event that was being processed; nil if there was none
	Effects    *effects.Effects // of that step, as far as the step got
	CarriedOut int              // number of effects carried out; if the step itself had ended, the next effect failed
	Stats      any              // counts; may be nil
	Machine    any
	Trace      *Trace // may be nil
}

// Bounds of a report: the bytes of the machine's state, the bytes of an event or effect, and the effects of the step.
const (
	maxStateBytes = 4 << 20
	maxValueBytes = 1 << 16
	maxEffects    = 4096
)

// report is the content of the file. The field names are stable; the content of state depends on the version of the
// machine.
type report struct {
	Format  int       `json:"format"`
	Time    time.Time `json:"time"`
	Version string    `json:"version"`
	Go      string    `json:"go"`
	System  string    `json:"system"`
	Node    string    `json:"node"`

	Said  string   `json:"said"`
	Stack []string `json:"stack"`

	Event   json.RawMessage   `json:"event,omitempty"`   // of the step that failed
	Effects []json.RawMessage `json:"effects,omitempty"` // of that step
	Carried int               `json:"carried"`           // the number of effects that were carried out

	Before int               `json:"before"` // events and effects that are no longer recorded
	Trace  []json.RawMessage `json:"trace"`
	Stats  json.RawMessage   `json:"stats,omitempty"`
	State  json.RawMessage   `json:"state"`
}

// formatVersion is the version of the report's own fields.
const formatVersion = 1

// renderReport makes the report. A part that cannot be rendered, because the state is too broken, is replaced by an
// error text.
func (c *Failure) renderReport(now time.Time) ([]byte, error) {
	r := report{
		Format: formatVersion, Time: now.UTC(), Version: buildinfo.Current().Version, Go: runtime.Version(),
		System: runtime.GOOS + "/" + runtime.GOARCH, Node: hex.EncodeToString(c.Node[:4]),
		Said: truncateText(c.Message), Stack: c.Stack, Carried: c.CarriedOut, Trace: []json.RawMessage{},
		State: toJSON(c.Machine, maxStateBytes),
	}
	if c.Event != nil {
		r.Event = withKind(c.Event)
	}
	if c.Effects != nil {
		for i := range min(c.Effects.Len(), maxEffects) {
			r.Effects = append(r.Effects, withKind(c.Effects.At(i)))
		}
	}
	if c.Stats != nil {
		r.Stats = toJSON(c.Stats, maxStateBytes)
	}
	if c.Trace != nil {
		kept, before := c.Trace.lastEntries()
		r.Before = int(before)
		for i := range kept {
			r.Trace = append(r.Trace, kept[i].renderEntry())
		}
	}
	return json.MarshalIndent(&r, "", " ")
}

// maxSaidBytes bounds the text of an assertion.
const maxSaidBytes = 4096

func truncateText(s string) string {
	if len(s) > maxSaidBytes {
		return s[:maxSaidBytes] + "..."
	}
	return s
}

// withKind returns an event or effect as JSON, with the kind.
func withKind(v any) json.RawMessage {
	kind, _ := json.Marshal(strings.TrimPrefix(fmt.Sprintf("%T", v), "*effects."))
	return fmt.Appendf(nil, `{"kind":%s,"value":%s}`, kind, toJSON(v, maxValueBytes))
}

func (e *entry) renderEntry() json.RawMessage {
	f := &forms[e.kind]
	kind := "event"
	if e.kind >= kindOpen {
		kind = "effect"
	}
	var b bytes.Buffer
	fmt.Fprintf(&b, `{"%s":"%s"`, kind, f.name)
	if e.at != 0 {
		fmt.Fprintf(&b, `,"at":%d`, e.at)
	}
	for _, n := range []struct {
		name string
		v    uint64
	}{{f.a, e.a}, {f.b, e.b}, {f.c, e.c}} {
		if n.name != "" {
			fmt.Fprintf(&b, `,"%s":%d`, n.name, n.v)
		}
	}
	if f.flag != "" {
		fmt.Fprintf(&b, `,"%s":%t`, f.flag, e.flag)
	}
	if f.code {
		fmt.Fprintf(&b, `,"code":"%s"`, e.code)
	}
	if f.peer {
		fmt.Fprintf(&b, `,"peer":"%x"`, e.peer)
	}
	b.WriteByte('}')
	return b.Bytes()
}

// CallerStack returns the caller's stack, innermost first: functions and lines, without arguments, which may hold
// secrets.
func CallerStack() []string {
	pcs := make([]uintptr, 64)
	frames := runtime.CallersFrames(pcs[:runtime.Callers(2, pcs)])
	var stack []string
	for {
		f, more := frames.Next()
		dir, file := filepath.Split(f.File)
		stack = append(stack, fmt.Sprintf("%s %s:%d", f.Function, filepath.Join(filepath.Base(dir), file), f.Line))
		if !more {
			return stack
		}
	}
}

const reportPrefix, reportSuffix, partialSuffix = "kvferry-report-", ".json", ".partial"

// reportName matches the names of reports and of unfinished reports.
var reportName = regexp.MustCompile("^" + reportPrefix + `\d{8}T\d{6}\.\d{9}-[0-9a-f]{8}\` + reportSuffix +
	`(\` + partialSuffix + ")?$")

// WriteReport writes a report to a directory, which is created if necessary, and removes the oldest reports beyond
// keep. The result is the name of the file. Only the user of this process may read the file. Files that are not reports
// are not touched.
func WriteReport(dir string, keep int, now time.Time, c *Failure) (string, error) {
	text, err := c.renderReport(now)
	if err != nil {
		return "", fmt.Errorf("render the report: %w", err)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", fmt.Errorf("make the directory of reports: %w", err)
	}
	at := now.UTC().Format("20060102T150405.000000000")
	name := filepath.Join(dir, fmt.Sprintf("%s%s-%x%s", reportPrefix, at, c.Node[:4], reportSuffix))
	// Under its final name the file is always complete.
	partial := name + partialSuffix
	f, err := os.OpenFile(partial, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return "", fmt.Errorf("write the report: %w", err)
	}
	_, err = f.Write(text)
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(partial, name) // No earlier report has this node's name and this nanosecond.
	}
	if err != nil {
		return "", fmt.Errorf("write the report: %w", errors.Join(err, os.Remove(partial)))
	}
	return name, pruneReports(dir, keep)
}

// pruneReports removes the oldest reports beyond keep, including unfinished ones. The names begin with the time.
func pruneReports(dir string, keep int) error {
	entries, err := os.ReadDir(dir) // sorted by name
	if err != nil {
		return fmt.Errorf("list the older reports: %w", err)
	}
	found := slices.DeleteFunc(entries, func(e os.DirEntry) bool {
		return !e.Type().IsRegular() || !reportName.MatchString(e.Name())
	})
	for _, old := range found[:max(len(found)-keep, 0)] {
		if err := os.Remove(filepath.Join(dir, old.Name())); err != nil && !os.IsNotExist(err) {
			return fmt.Errorf("remove an older report: %w", err)
		}
	}
	return nil
}
