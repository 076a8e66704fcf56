package doctor

import (
	"fmt"
	"path"
	"strconv"
	"strings"
)

const meminfo = "proc/meminfo"

func (m Machine) checkMemory(s *Section) {
	total, ok := m.readKilobytes(meminfo, "MemTotal")
	if !ok {
		s.addNote("memory", "unknown: /proc/meminfo does not give the size", "mount /proc to have the memory checked")
	} else if available, ok := m.readKilobytes(meminfo, "MemAvailable"); ok {
		s.addOK("memory", "%s, %s of it available", formatSize(total), formatSize(available))
	} else {
		s.addOK("memory", "%s", formatSize(total))
	}
	if limit := m.cgroupLimits().memory; limit != 0 {
		s.addOK("container's memory", "%s, which includes page pools", formatSize(limit))
	} else {
		s.addOK("container's memory", "no limit")
	}
	m.checkOvercommit(s)
	m.checkSharedMemory(s)
	m.checkHugePages(s)
}

func (m Machine) checkOvercommit(s *Section) {
	if mode, _ := m.readNumber("proc/sys/vm/overcommit_memory"); mode != 2 {
		return
	}
	limit, _ := m.readKilobytes(meminfo, "CommitLimit")
	used, _ := m.readKilobytes(meminfo, "Committed_AS")
	left := limit - min(used, limit)
	s.addNote("overcommit", fmt.Sprintf("disabled; %s can still be committed", formatSize(left)),
		"make the pools smaller than that, or sysctl vm.overcommit_memory=0: a pool is committed as a whole when it is created")
}

// checkSharedMemory reports the size of /dev/shm. The size does not limit pools, but libraries of the engine may use
// /dev/shm.
func (m Machine) checkSharedMemory(s *Section) {
	const small = 1 << 30
	bytes, ok := m.mountSize("/dev/shm")
	switch {
	case !ok:
		s.addOK("/dev/shm", "not limited or not mounted; pools are memory files and do not use it")
	case bytes < small:
		s.addNote("/dev/shm", formatSize(bytes),
			"docker --shm-size=16g, or an emptyDir with medium: Memory, if the engine needs more; pools are memory files and do "+
				"not use /dev/shm")
	default:
		s.addOK("/dev/shm", "%s; pools are memory files and do not use it", formatSize(bytes))
	}
}

// mountSize returns the size option of the file system that was mounted last at a folder. It reports false if there is
// no such mount or no size.
func (m Machine) mountSize(at string) (bytes uint64, ok bool) {
	for line := range strings.Lines(m.readText("proc/self/mountinfo")) {
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

func (m Machine) checkHugePages(s *Section) {
	var kinds []string
	for _, dir := range m.globFiles("sys/kernel/mm/hugepages/hugepages-*kB") {
		total, ok := m.readNumber(dir + "/nr_hugepages")
		free, _ := m.readNumber(dir + "/free_hugepages")
		kilobytes, err := strconv.ParseUint(strings.TrimSuffix(strings.TrimPrefix(path.Base(dir), "hugepages-"), "kB"), 10,
			54)
		if ok && err == nil && total > 0 {
			kinds = append(kinds, fmt.Sprintf("%d of %s, %d of them free", total, formatSize(kilobytes<<10), free))
		}
	}
	if len(kinds) == 0 {
		s.addOK("huge pages", "none reserved; pools use them only with pool.huge_pages")
	} else {
		s.addOK("huge pages", "%s; pools use them only with pool.huge_pages", strings.Join(kinds, "; "))
	}
	const folder = "sys/kernel/mm/transparent_hugepage"
	private, shared := activeValue(m.readText(folder+"/enabled")), activeValue(m.readText(folder+"/shmem_enabled"))
	switch {
	case private == "" && shared == "":
		s.addOK("transparent huge pages", "not built into this kernel")
	case shared == "":
		s.addOK("transparent huge pages", "%s; unknown for shared memory", private)
	case shared == "never" || shared == "deny" || shared == "advise":
		s.addNote("transparent huge pages", fmt.Sprintf("%s; for shared memory: %s", private, shared),
			"for faster copies in large pools, before nodes start: echo within_size > /"+folder+"/shmem_enabled "+
				"(pools then have huge pages)")
	default:
		s.addOK("transparent huge pages", "%s; for shared memory: %s", private, shared)
	}
}

// activeValue returns the word in brackets, with which sysfs marks the active value.
func activeValue(text string) string {
	_, rest, _ := strings.Cut(text, "[")
	word, _, _ := strings.Cut(rest, "]")
	return word
}
