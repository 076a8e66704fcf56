package doctor

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/kvferry/kvferry/runtime/config"
	"github.com/kvferry/kvferry/runtime/plane/backing"
)

// filesSpare is the number of files that a node opens in addition to its connections: pools, planes and logs.
const filesSpare = 64

// defaultConns is the value of tables.conns without a configuration.
const defaultConns = 4096

// mapCountDefault is the default of vm.max_map_count in Linux.
const mapCountDefault = 65530

// softLimit returns the soft limit of a resource, which has the name that it has in /proc/self/limits. MaxUint64 means
// that there is no limit. softLimit reports false if the file does not give the limit.
func (m Machine) softLimit(name string) (uint64, bool) {
	for line := range strings.Lines(m.readText("proc/self/limits")) {
		rest, ok := strings.CutPrefix(line, name)
		if !ok {
			continue
		}
		words := strings.Fields(rest)
		if len(words) == 0 {
			return 0, false
		}
		if words[0] == "unlimited" {
			return math.MaxUint64, true
		}
		n, err := strconv.ParseUint(words[0], 10, 64)
		return n, err == nil
	}
	return 0, false
}

// checkLimits checks the process's resource limits. Go has already raised the soft limit of files to the hard limit, as
// Go does in a node.
func (m Machine) checkLimits(s *Section, cfg *config.Config, npu bool) {
	conns := uint64(defaultConns)
	if cfg != nil {
		conns = uint64(cfg.Bounds.Conns)
	}
	need := 2*conns + filesSpare
	switch files, ok := m.softLimit("Max open files"); {
	case !ok:
		s.addNote("open files", "unknown: /proc/self/limits does not give the limit", "mount /proc to have the limit checked")
	case files < need:
		verdict := Note
		if cfg != nil {
			verdict = Warning
		}
		s.addRow("open files", strconv.FormatUint(files, 10), verdict,
			fmt.Sprintf("raise the hard limit to %d (ulimit -Hn, LimitNOFILE=, docker --ulimit nofile=): "+
				"%d outgoing connections (tables.conns) and as many incoming ones need a file each; or lower tables.conns", need, conns))
	default:
		s.addOK("open files", "%s", formatLimit(files, "%d"))
	}
	switch locked, ok := m.softLimit("Max locked memory"); {
	case !ok:
	case cfg != nil && cfg.Pool.Lock:
		m.checkPoolLock(s, cfg, locked)
	case npu && locked != math.MaxUint64:
		s.addNote("locked memory", formatSize(locked),
			"if pinning host memory fails, raise the limit: ulimit -l unlimited, LimitMEMLOCK=infinity, docker --ulimit memlock=-1")
	case locked == math.MaxUint64:
		s.addOK("locked memory", "unlimited")
	default:
		s.addOK("locked memory", "%s; pools in host memory are not locked without pool.lock", formatSize(locked))
	}
	if cfg != nil && cfg.Pool.HugePages {
		m.checkPoolHugePages(s, cfg)
	}
	if maps, ok := m.readNumber("proc/sys/vm/max_map_count"); ok && maps < mapCountDefault {
		s.addWarning("mappings", strconv.FormatUint(maps, 10),
			fmt.Sprintf("sysctl vm.max_map_count=%d, the default of Linux: engines and device drivers make many small mappings",
				mapCountDefault))
	} else if ok {
		s.addOK("mappings", "%d", maps)
	}
}

// checkPoolLock checks whether a node may lock its pool in memory. Each rank is a separate process.
func (m Machine) checkPoolLock(s *Section, cfg *config.Config, limit uint64) {
	need := cfg.BufferBytes + uint64(cfg.ArenaPages)*cfg.PageBytes
	switch {
	case limit == math.MaxUint64:
		s.addOK("locked memory", "unlimited; pool.lock takes %s", formatSize(need))
	case backing.HasIPCLock([]byte(m.readText("proc/self/status"))):
		s.addOK("locked memory", "%s, but the process has CAP_IPC_LOCK; pool.lock takes %s", formatSize(limit), formatSize(need))
	case need > limit:
		s.addProblem("locked memory", formatSize(limit)+", and pool.lock takes "+formatSize(need),
			"ulimit -l unlimited, LimitMEMLOCK=infinity, docker --ulimit memlock=-1 or CAP_IPC_LOCK; or leave pool.lock out")
	default:
		s.addOK("locked memory", "%s, and pool.lock takes %s", formatSize(limit), formatSize(need))
	}
}

// checkPoolHugePages checks whether there are enough huge pages for a node's pool. Each rank is a separate process.
func (m Machine) checkPoolHugePages(s *Section, cfg *config.Config) {
	need := cfg.BufferBytes + uint64(cfg.ArenaPages)*cfg.PageBytes
	more, _ := m.readNumber("proc/sys/vm/nr_overcommit_hugepages")
	room := backing.ParseHugePages([]byte(m.readText(meminfo)), more)
	if room.PageBytes == 0 {
		s.addProblem("pool.huge_pages", "this kernel has no huge pages", "leave pool.huge_pages out")
		return
	}
	pages := room.RoundUp(need) / room.PageBytes
	text := fmt.Sprintf("%d huge pages of %s are free, and the pool takes %d", room.Free, formatSize(room.PageBytes), pages)
	if pages > room.Free {
		s.addProblem("pool.huge_pages", text, fmt.Sprintf("sysctl vm.nr_hugepages=%d; or leave pool.huge_pages out",
			room.Total-min(room.Total, room.Free)+pages))
		return
	}
	s.addOK("pool.huge_pages", "%s", text)
}

func formatLimit(n uint64, format string) string {
	if n == math.MaxUint64 {
		return "unlimited"
	}
	return fmt.Sprintf(format, n)
}
