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
func (m Machine) limit(name string) (uint64, bool) {
	for line := range strings.Lines(m.text("proc/self/limits")) {
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

// limits checks the process's resource limits. Go has already raised the soft limit of files to the hard limit, as Go
// does in a node.
func (m Machine) limits(s *Section, cfg *config.Config, npu bool) {
	conns := uint64(defaultConns)
	if cfg != nil {
		conns = uint64(cfg.Bounds.Conns)
	}
	need := 2*conns + filesSpare
	switch files, ok := m.limit("Max open files"); {
	case !ok:
		s.note("open files", "unknown: /proc/self/limits does not say", "mount /proc to have the limit checked")
	case files < need:
		verdict := Note
		if cfg != nil {
			verdict = Warning
		}
		s.add("open files", strconv.FormatUint(files, 10), verdict,
			fmt.Sprintf("raise the hard limit to %d (ulimit -Hn, LimitNOFILE=, docker --ulimit nofile=): "+
				"%d connections (tables.conns) and as many of peers take a file each; or lower tables.conns", need, conns))
	default:
		s.ok("open files", "%s", unlimited(files, "%d"))
	}
	switch locked, ok := m.limit("Max locked memory"); {
	case !ok:
	case cfg != nil && cfg.Pool.Lock:
		m.poolLock(s, cfg, locked)
	case npu && locked != math.MaxUint64:
		s.note("locked memory", size(locked),
			"if pinned host memory fails, lift it: ulimit -l unlimited, LimitMEMLOCK=infinity, docker --ulimit memlock=-1")
	case locked == math.MaxUint64:
		s.ok("locked memory", "unlimited")
	default:
		s.ok("locked memory", "%s; pools in host memory are not locked without pool.lock", size(locked))
	}
	if cfg != nil && cfg.Pool.HugePages {
		m.poolHugePages(s, cfg)
	}
	if maps, ok := m.number("proc/sys/vm/max_map_count"); ok && maps < mapCountDefault {
		s.warn("mappings", strconv.FormatUint(maps, 10),
			fmt.Sprintf("sysctl vm.max_map_count=%d, Linux's own value: engines and device drivers map in small pieces",
				mapCountDefault))
	} else if ok {
		s.ok("mappings", "%d", maps)
	}
}

// poolLock checks whether a node may lock its pool in memory. Each rank is a separate process.
func (m Machine) poolLock(s *Section, cfg *config.Config, limit uint64) {
	need := cfg.BufferBytes + uint64(cfg.ArenaPages)*cfg.PageBytes
	switch {
	case limit == math.MaxUint64:
		s.ok("locked memory", "unlimited; pool.lock takes %s", size(need))
	case backing.HasIPCLock([]byte(m.text("proc/self/status"))):
		s.ok("locked memory", "%s, which does not hold with CAP_IPC_LOCK; pool.lock takes %s", size(limit), size(need))
	case need > limit:
		s.problem("locked memory", size(limit)+", and pool.lock takes "+size(need),
			"ulimit -l unlimited, LimitMEMLOCK=infinity, docker --ulimit memlock=-1 or CAP_IPC_LOCK; or leave pool.lock out")
	default:
		s.ok("locked memory", "%s, of which pool.lock takes %s", size(limit), size(need))
	}
}

// poolHugePages checks whether there are enough huge pages for a node's pool. Each rank is a separate process.
func (m Machine) poolHugePages(s *Section, cfg *config.Config) {
	need := cfg.BufferBytes + uint64(cfg.ArenaPages)*cfg.PageBytes
	more, _ := m.number("proc/sys/vm/nr_overcommit_hugepages")
	room := backing.ParseHugePages([]byte(m.text(meminfo)), more)
	if room.PageBytes == 0 {
		s.problem("pool.huge_pages", "this kernel has none", "leave pool.huge_pages out")
		return
	}
	pages := room.RoundUp(need) / room.PageBytes
	text := fmt.Sprintf("%d of %s are free, and the pool takes %d", room.Free, size(room.PageBytes), pages)
	if pages > room.Free {
		s.problem("pool.huge_pages", text, fmt.Sprintf("sysctl vm.nr_hugepages=%d; or leave pool.huge_pages out",
			room.Total-min(room.Total, room.Free)+pages))
		return
	}
	s.ok("pool.huge_pages", "%s", text)
}

func unlimited(n uint64, format string) string {
	if n == math.MaxUint64 {
		return "unlimited"
	}
	return fmt.Sprintf(format, n)
}
