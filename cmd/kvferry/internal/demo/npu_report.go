package demo

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// An NPUReport is the report about the NPUs in one replay. For real NPUs, only the communicators are known.
type NPUReport struct {
	Library   string `json:"library"`
	Software  bool   `json:"software"`
	Link      string `json:"link"`
	Processes int    `json:"processes"` // number of processes that used an NPU, including killed and refused processes

	Batches             int64   `json:"batches"`
	Descriptors         int64   `json:"descriptors"`
	DescriptorsPerBatch float64 `json:"descriptors_per_batch"`
	BytesPut            int64   `json:"bytes_put"`
	BytesGot            int64   `json:"bytes_got"`

	// Formed is the number of communicators that nodes formed to reach peers, and Fenced the number of these that were
	// abandoned before the link was. Expelled is the number of communicators formed by peers that were abandoned to
	// reclaim pages.
	Formed   uint64 `json:"communicators_formed"`
	Fenced   uint64 `json:"communicators_fenced"`
	Expelled uint64 `json:"communicators_expelled"`

	Faults     string         `json:"faults,omitempty"`
	Injected   map[string]int `json:"injected,omitempty"` // number of injected faults by rule
	Refused    []string       `json:"refused,omitempty"`  // nodes that did not start at first, with the code
	Unexpected []string       `json:"unexpected"`         // failed attempts that the faults do not explain

	Left       []string `json:"left"`       // objects that processes did not release, except killed processes
	Violations []string `json:"violations"` // broken rules of the interface, by any process
	OK         bool     `json:"ok"`
}

// npuReport reads the reports that the processes wrote into the folder. All processes must have ended. It returns nil
// for a replay without NPUs.
func (c *cluster) npuReport(o *Options, t *tally) *NPUReport {
	n := o.NPU
	if n == nil {
		return nil
	}
	r := &NPUReport{Library: n.Library, Software: n.software, Link: o.Mode.linkKind().String(), Refused: c.refusedStarts,
		Left: []string{}, Violations: []string{}, Unexpected: append([]string{}, n.faults.unexpectedCauses(t.r.Failures)...)}
	for _, l := range t.links {
		r.Formed += l.Formed
		r.Fenced += l.Fenced
		r.Expelled += l.Expelled
	}
	if !n.software {
		r.Link, r.OK = "the machine's links", true
		return r
	}
	for _, p := range c.startedProcesses() {
		r.Processes++
		r.addProcess(npuDir(c.dir), p)
	}
	if r.Batches > 0 {
		r.DescriptorsPerBatch = float64(r.Descriptors) / float64(r.Batches)
	}
	if n.faults != nil {
		r.Faults, r.Injected = n.faults.Name, countInjected(c.dir)
		if len(r.Injected) == 0 && n.faults.codes != nil { // The user's own rules need not be in a log.
			r.Unexpected = append(r.Unexpected, "no fault was injected; play more requests")
		}
		if n.faults.fencesLinks && r.Fenced == 0 {
			r.Unexpected = append(r.Unexpected, "no communicator was fenced")
		}
	}
	r.OK = r.Batches > 0 && len(r.Left)+len(r.Violations)+len(r.Unexpected) == 0
	return r
}

// addProcess adds the report of one process.
func (r *NPUReport) addProcess(dir string, p *process) {
	file := func(kind string) string { return filepath.Join(dir, fmt.Sprintf("%d.%s", p.cmd.Process.Pid, kind)) }
	for _, line := range readReportLines(file("violations"), &r.Violations) {
		r.Violations = append(r.Violations, p.name+": "+line)
	}
	stats := readCounters(file("stats"), &r.Violations)
	r.Batches += stats["batches"]
	r.Descriptors += stats["descriptors"]
	r.BytesPut += stats["bytes_put"]
	r.BytesGot += stats["bytes_got"]
	if p.killed.Load() {
		return // The objects of a killed process were freed with the process.
	}
	live := readCounters(file("live"), &r.Violations)
	for _, kind := range slices.Sorted(maps.Keys(live)) {
		if live[kind] != 0 {
			r.Left = append(r.Left, fmt.Sprintf("%s: %d %s", p.name, live[kind], kind))
		}
	}
}

// readReportLines reads the lines of a report. A missing report counts as a problem, because a process without reports
// would otherwise look clean.
func readReportLines(path string, problems *[]string) []string {
	b, err := os.ReadFile(path)
	if err != nil {
		*problems = append(*problems, fmt.Sprintf("no report: %v", err))
		return nil
	}
	return strings.FieldsFunc(string(bytes.TrimRight(b, "\x00")), func(r rune) bool { return r == '\n' || r == 0 })
}

func readCounters(path string, problems *[]string) map[string]int64 {
	all := map[string]int64{}
	for _, line := range readReportLines(path, problems) {
		name, value, _ := strings.Cut(line, "=")
		if n, err := strconv.ParseInt(value, 10, 64); err == nil {
			all[name] = n
		}
	}
	return all
}

// countInjected counts the injected faults in the logs by rule.
func countInjected(dir string) map[string]int {
	count := map[string]int{}
	logs, _ := filepath.Glob(filepath.Join(npuDir(dir), "*.log")) // The pattern is valid, so Glob cannot fail.
	for _, log := range logs {
		b, err := os.ReadFile(log)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			continue // The faults in this log are not counted.
		}
		for line := range strings.Lines(string(b)) {
			if rule, is := strings.CutPrefix(line, "fault "); is {
				rule, _, _ = strings.Cut(rule, ": ")
				count[rule]++
			}
		}
	}
	return count
}

// tableRows returns the rows of the text table.
func (r *NPUReport) tableRows() [][2]string {
	rows := [][2]string{
		{"NPUs", r.Link + ", by " + libraryText(r.Library)},
		{"communicators", fmt.Sprintf("%d formed, %d of these fenced; %d of peers expelled", r.Formed, r.Fenced, r.Expelled)},
	}
	if !r.Software {
		return rows
	}
	rows = append(rows,
		[2]string{"batches", fmt.Sprintf("%d, with %.1f descriptors each; %s written, %s read", r.Batches, r.DescriptorsPerBatch,
			formatMiB(r.BytesPut), formatMiB(r.BytesGot))})
	if r.Faults != "" {
		rows = append(rows, [2]string{"faults", r.Faults}, [2]string{"injected", FormatCounts(r.Injected)})
	}
	if len(r.Refused) > 0 {
		rows = append(rows, [2]string{"refused to start", joinList(r.Refused)})
	}
	if r.Faults != "" {
		rows = append(rows, [2]string{"not explained", joinList(r.Unexpected)})
	}
	return append(rows,
		[2]string{"not released on NPUs", fmt.Sprintf("%s, by %d processes", joinList(r.Left), r.Processes)},
		[2]string{"broken rules", joinList(r.Violations)})
}

func libraryText(library string) string {
	if library == "" {
		return "the machine's libraries"
	}
	return library
}
