package doctor

import (
	"fmt"
	"path"
	"strconv"
	"strings"
)

const meminfo = "proc/meminfo"

func (m Machine) memory(s *Section) {
	total, ok := m.kilobytes(meminfo, "MemTotal")
	if !ok {
		s.note("memory", "unknown: /proc/meminfo does not say", "mount /proc to have it checked")
	} else if available, ok := m.kilobytes(meminfo, "MemAvailable"); ok {
		s.ok("memory", "%s, %s of it available", size(total), size(available))
	} else {
		s.ok("memory", "%s", size(total))
	}
	if limit := m.container().memory; limit != 0 {
		s.ok("container's memory", "%s, page pools included", size(limit))
	} else {
		s.ok("container's memory", "no limit")
	}
	m.overcommit(s)
	m.sharedMemory(s)
	m.hugePages(s)
}

func (m Machine) overcommit(s *Section) {
	if mode, _ := m.number("proc/sys/vm/overcommit_memory"); mode != 2 {
		return
	}
	limit, _ := m.kilobytes(meminfo, "CommitLimit")
	used, _ := m.kilobytes(meminfo, "Committed_AS")
	left := limit - min(used, limit)
	s.note("overcommit", fmt.Sprintf("off, %s can still be committed", size(left)),
		"keep pools below that, or sysctl vm.overcommit_memory=0: a pool is committed as a whole when it is made")
}

// checkSharedMemory reports the size of /dev/shm. The size does not limit pools, but libraries of the engine may use
// /dev/shm.
func (m Machine) sharedMemory(s *Section) {
	const small = 1 << 30
	bytes, ok := m.mountSize("/dev/shm")
	switch {
	case !ok:
		s.ok("/dev/shm", "not bounded or not mounted; pools are memory files and do not use it")
	case bytes < small:
		s.note("/dev/shm", size(bytes),
			"docker --shm-size=16g, or an emptyDir of medium Memory, if the engine asks for it; pools are memory files and do "+
				"not use it")
	default:
		s.ok("/dev/shm", "%s; pools are memory files and do not use it", size(bytes))
	}
}

// mountSize returns the size option of the file system that was mounted last at a folder. It reports false if there is
// no such mount or no size.
func (m Machine) mountSize(at string) (bytes uint64, ok bool) {
	for line := range strings.Lines(m.text("proc/self/mountinfo")) {
		words := strings.Fields(line)
		if len(words) < 7 || words[4] != at {
			continue
		}
		bytes, ok = 0, false
		for option := range strings.SplitSeq(words[len(words)-1], ",") {
			if text, is := strings.CutPrefix(option, "size="); is {
				n, err := strconv.ParseUint(strings.TrimSuffix(text, "k"), 10, 54)
				bytes, ok = n<<10, err == nil && strings.HasSuffix(text, "k")
			}
		}
	}
	return bytes, ok
}

func (m Machine) hugePages(s *Section) {
	var kinds []string
	for _, dir := range m.matches("sys/kernel/mm/hugepages/hugepages-*kB") {
		total, ok := m.number(dir + "/nr_hugepages")
		free, _ := m.number(dir + "/free_hugepages")
		kilobytes, err := strconv.ParseUint(strings.TrimSuffix(strings.TrimPrefix(path.Base(dir), "hugepages-"), "kB"), 10,
			54)
		if ok && err == nil && total > 0 {
			kinds = append(kinds, fmt.Sprintf("%d of %s, %d free", total, size(kilobytes<<10), free))
		}
	}
	if len(kinds) == 0 {
		s.ok("huge pages", "none set aside; pools need none without pool.huge_pages")
	} else {
		s.ok("huge pages", "%s; for pools with pool.huge_pages", strings.Join(kinds, "; "))
	}
	const folder = "sys/kernel/mm/transparent_hugepage"
	private, shared := chosen(m.text(folder+"/enabled")), chosen(m.text(folder+"/shmem_enabled"))
	switch {
	case private == "" && shared == "":
		s.ok("transparent huge pages", "not built into this kernel")
	case shared == "":
		s.ok("transparent huge pages", "%s, for shared memory unknown", private)
	case shared == "never" || shared == "deny" || shared == "advise":
		s.note("transparent huge pages", fmt.Sprintf("%s, for shared memory %s", private, shared),
			"echo within_size > /"+folder+"/shmem_enabled before nodes start gives large pools large pages, and may make "+
				"copies faster")
	default:
		s.ok("transparent huge pages", "%s, for shared memory %s", private, shared)
	}
}

// activeValue returns the word in brackets, with which sysfs marks the active value.
func chosen(text string) string {
	_, rest, _ := strings.Cut(text, "[")
	word, _, _ := strings.Cut(rest, "]")
	return word
}
