package backing

import (
	"errors"
	"fmt"
	"os"
	"syscall"
	"testing"
)

const memfdBytes = 1 << 16

func createMemfd(t *testing.T, m Memfd) (*os.File, []byte) {
	t.Helper()
	m.Name, m.Bytes = "kvferry-test", memfdBytes
	file, mem, err := m.CreateAndMap(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = syscall.Munmap(mem)
		_ = file.Close()
	})
	return file, mem
}

// mapWritable reports whether a file can be mapped writable.
func mapWritable(file *os.File) ([]byte, error) {
	return syscall.Mmap(int(file.Fd()), 0, memfdBytes, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED)
}

func TestNobodyChangesTheSizeOfAMemfd(t *testing.T) {
	for _, m := range []Memfd{{}, {Writable: true}, {Overcommit: true}} {
		file, _ := createMemfd(t, m)
		for _, size := range []int64{0, memfdBytes - 1, memfdBytes + 1} {
			if err := file.Truncate(size); !errors.Is(err, syscall.EPERM) {
				t.Errorf("%+v: %d bytes: %v", m, size, err)
			}
		}
		// the seal that would forbid stores to every process
		if _, _, e := syscall.Syscall(syscall.SYS_FCNTL, file.Fd(), fAddSeals, 0x8); e != syscall.EPERM {
			t.Errorf("%+v: a seal was added: %v", m, e)
		}
	}
}

func TestOnlyAWritableMemfdIsMappedWritable(t *testing.T) {
	file, mem := createMemfd(t, Memfd{})
	if _, err := mapWritable(file); !errors.Is(err, syscall.EPERM) {
		t.Errorf("one that is not: %v", err)
	}
	mem[5] = 1 // Our own mapping is writable.

	file, mem = createMemfd(t, Memfd{Writable: true})
	theirs, err := mapWritable(file)
	if err != nil {
		t.Fatal(err)
	}
	defer syscall.Munmap(theirs)
	if theirs[5] = 7; mem[5] != 7 {
		t.Error("what was stored by the file is not here")
	}
}

func TestAFileToReadIsNeverMappedWritable(t *testing.T) {
	file, mem := createMemfd(t, Memfd{Writable: true})
	read, err := ReadOnly(file)
	if err != nil {
		t.Fatal(err)
	}
	defer read.Close()
	mode, _, e := syscall.Syscall(syscall.SYS_FCNTL, read.Fd(), syscall.F_GETFL, 0)
	if e != 0 || mode&syscall.O_ACCMODE != syscall.O_RDONLY {
		t.Errorf("its mode is %#x, %v", mode, e)
	}
	if _, err := mapWritable(read); !errors.Is(err, syscall.EACCES) {
		t.Errorf("mapped: %v", err)
	}
	if _, err := syscall.Pwrite(int(read.Fd()), []byte{1}, 0); !errors.Is(err, syscall.EBADF) {
		t.Errorf("written: %v", err)
	}
	theirs, err := syscall.Mmap(int(read.Fd()), 0, memfdBytes, syscall.PROT_READ, syscall.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	defer syscall.Munmap(theirs)
	if err := syscall.Mprotect(theirs, syscall.PROT_READ|syscall.PROT_WRITE); !errors.Is(err, syscall.EACCES) {
		t.Errorf("made writable: %v", err)
	}
	if mem[9] = 3; theirs[9] != 3 {
		t.Error("it is not the same memory")
	}
	if os.Geteuid() == 0 {
		t.Skip("whether it opens anew for writing: root may open all files")
	}
	for _, f := range []*os.File{read, file} {
		again, err := os.OpenFile(fmt.Sprintf("/proc/self/fd/%d", f.Fd()), os.O_RDWR, 0)
		if !errors.Is(err, syscall.EACCES) {
			_ = again.Close()
			t.Errorf("opened anew: %v", err)
		}
	}
}
