// Package backing allocates memory that really exists. Linux hands out address space without memory, and kills a
// process when more memory is touched than the host has: a pool opened in that way would end its node, or another
// process, when the first pages are filled. So this package compares the size of a pool with the memory that is
// available, as far as a process can know that, and then allocates the whole pool before the pool is open.
//
// A process can know the kernel's MemAvailable, and for each of its memory cgroups, of version 1 or 2, the cgroup's
// limit less the memory in use there that cannot be dropped. A process cannot know limits outside of the container's
// own view, nor the memory that other processes allocate meanwhile. Therefore the comparison is repeated while memory
// is allocated, and 1/32 of the available memory is left free.
//
// If there is too little memory, the error is a [*Shortage], a [*HugeShortage] or a [*LockShortage], which says how
// much was asked for and which limit is too small. CreateAndMap leaves nothing allocated then. After the error of
// LockMemory, which locks memory that exists, the memory is still mapped.
//
// Example:
//
//	if err := backing.CheckAvailable(64 << 30); err != nil {
//		return err // "68719476736 bytes of memory are requested, and 50465865728 are available (memory.max of cgroup /)"
//	}
//	file, mem, err := backing.Memfd{Name: "pool", Bytes: 64 << 30}.CreateAndMap(ctx)
package backing
