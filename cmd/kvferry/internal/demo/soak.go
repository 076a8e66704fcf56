package demo

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/kvferry/kvferry/cmd/kvferry/internal/agent"
)

// A soak replays a trace many times in the same processes, and compares what the nodes use early with what they use
// late. The first part of the replay is not compared, because caches and buffers fill up in it.

// Usage is the most that a process used at one time.
type Usage struct {
	MemoryBytes int64 `json:"memory_bytes"` // private memory, without the pool, which is shared
	Files       int64 `json:"files"`
	Goroutines  int64 `json:"goroutines"`
}

// Growth compares what a process used early and late in a soak.
type Growth struct {
	Early Usage `json:"early"` // between a fifth and a half of the requests
	Late  Usage `json:"late"`  // in the last fifth
	OK    bool  `json:"ok"`    // Late is within the limits
}

// What a process may use more than before, without a leak: these grow with chance, not with time.
const (
	memoryGrowthMax    = 16 << 20
	filesGrowthMax     = 8
	goroutineGrowthMax = 32
	growthPercentMax   = 10
)

func (u *Usage) max(v Usage) {
	u.MemoryBytes, u.Files, u.Goroutines = max(u.MemoryBytes, v.MemoryBytes), max(u.Files, v.Files), max(u.Goroutines, v.Goroutines)
}

// complete judges the growth. Without samples of both parts, nothing was compared, which is no success.
func (g *Growth) complete() {
	within := func(early, late, slack int64) bool {
		return early > 0 && late > 0 && late <= early*(100+growthPercentMax)/100+slack
	}
	g.OK = within(g.Early.MemoryBytes, g.Late.MemoryBytes, memoryGrowthMax) && within(g.Early.Files, g.Late.Files, filesGrowthMax) &&
		within(g.Early.Goroutines, g.Late.Goroutines, goroutineGrowthMax)
}

// sampleUsage samples what the nodes use until stop is closed.
func (p *player) sampleUsage(requests int, stop <-chan struct{}) {
	ticker := time.NewTicker(500 * time.Millisecond)
	defer ticker.Stop()
	for {
		select {
		case <-stop:
			return
		case <-ticker.C:
		}
		for _, node := range p.cluster.nodeProcesses() {
			s := node.callAgent(agent.Request{Op: "stats"}).Stats
			u, err := usageOf(node.cmd.Process.Pid)
			if s == nil || err != nil {
				continue // The process has ended.
			}
			u.Goroutines = int64(s.Goroutines)
			p.tally.addUsage(node.name, u, requests)
		}
	}
}

func (t *tally) addUsage(name string, u Usage, requests int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.r.Growth == nil {
		t.r.Growth = map[string]*Growth{}
	}
	g := t.r.Growth[name]
	if g == nil {
		g = &Growth{}
		t.r.Growth[name] = g
	}
	switch done := t.r.Completed + t.r.Lost; {
	case done >= requests/5 && done < requests/2:
		g.Early.max(u)
	case done >= requests*4/5:
		g.Late.max(u)
	}
}

// usageOf reads what a process uses from /proc.
func usageOf(pid int) (u Usage, err error) {
	dir := filepath.Join("/proc", strconv.Itoa(pid))
	status, err := os.ReadFile(filepath.Join(dir, "status"))
	if err != nil {
		return u, err
	}
	for line := range strings.Lines(string(status)) {
		if value, ok := strings.CutPrefix(line, "RssAnon:"); ok {
			var kib int64
			if _, err := fmt.Sscan(value, &kib); err != nil {
				return u, err
			}
			u.MemoryBytes = kib << 10
		}
	}
	files, err := os.ReadDir(filepath.Join(dir, "fd"))
	u.Files = int64(len(files))
	return u, err
}

// growthRows returns a row for each process of a soak.
func (r *Report) growthRows() (rows [][2]string) {
	for _, name := range slices.Sorted(maps.Keys(r.Growth)) {
		g := r.Growth[name]
		verdict := ""
		if !g.OK {
			verdict = ": MORE THAN CHANCE ALLOWS"
		}
		rows = append(rows, [2]string{"growth", fmt.Sprintf("%s: memory %s to %s, files %d to %d, goroutines %d to %d%s", name,
			formatMiB(g.Early.MemoryBytes), formatMiB(g.Late.MemoryBytes), g.Early.Files, g.Late.Files, g.Early.Goroutines,
			g.Late.Goroutines, verdict)})
	}
	return rows
}
