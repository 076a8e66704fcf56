//go:build cgo && linux

// Package acltest lets tests talk to the software NPU besides the vendor's interface: its settings, faults and reports,
// and the ABI that it was compiled for. Only tests import it.
package acltest

/*
#cgo CFLAGS: -std=c11 -O2 -Wall -Wextra -Werror
#cgo LDFLAGS: -ldl
#include <dlfcn.h>
#include <stdint.h>
#include <stdlib.h>

typedef int (*control_function)(const char *command, char *reply, size_t reply_bytes);
typedef int (*abi_function)(const char *name, size_t *value);

typedef int (*device_function)(int32_t device);

static int set_device(void *f, int32_t device) { return ((device_function)f)(device); }

static int control(void *f, const char *command, char *reply, size_t reply_bytes) {
  return ((control_function)f)(command, reply, reply_bytes);
}

static int abi(void *f, const char *name, size_t *value) { return ((abi_function)f)(name, value); }
*/
import "C"

import (
	"fmt"
	"strconv"
	"strings"
	"unsafe"
)

// An NPU is the software NPU of this process.
type NPU struct{ control, abi, setDevice unsafe.Pointer }

// OpenNPU opens the software NPU at path. The loader returns the same library to the binding, so both share one state.
func OpenNPU(path string) (*NPU, error) {
	name := C.CString(path)
	defer C.free(unsafe.Pointer(name))
	library := C.dlopen(name, C.RTLD_NOW|C.RTLD_GLOBAL)
	if library == nil {
		return nil, fmt.Errorf("%s: %s", path, C.GoString(C.dlerror()))
	}
	n := &NPU{findSymbol(library, "cannemu_control"), findSymbol(library, "cannemu_abi"), findSymbol(library, "aclrtSetDevice")}
	if n.control == nil || n.abi == nil {
		return nil, fmt.Errorf("%s is not a software NPU: cannemu_control or cannemu_abi is missing", path)
	}
	return n, nil
}

func findSymbol(library unsafe.Pointer, name string) unsafe.Pointer {
	text := C.CString(name)
	defer C.free(unsafe.Pointer(text))
	return C.dlsym(library, text)
}

// Control sends one command and returns the reply.
func (n *NPU) Control(command string) (string, error) {
	text := C.CString(command)
	defer C.free(unsafe.Pointer(text))
	const replyBytes = 1 << 18
	reply := (*C.char)(C.calloc(replyBytes, 1))
	defer C.free(unsafe.Pointer(reply))
	if code := C.control(n.control, text, reply, replyBytes); code < 0 {
		return "", fmt.Errorf("%s: %s", command, C.GoString(reply))
	}
	return C.GoString(reply), nil
}

// Stats returns the counters by name.
func (n *NPU) Stats() (map[string]int64, error) {
	text, err := n.Control("stats")
	if err != nil {
		return nil, err
	}
	stats := map[string]int64{}
	for line := range strings.Lines(text) {
		name, value, ok := strings.Cut(strings.TrimSpace(line), "=")
		if number, err := strconv.ParseInt(value, 10, 64); ok && err == nil {
			stats[name] = number
		}
	}
	return stats, nil
}

// ABIValue returns the size of a struct, or the offset of a field given as struct.field. ok is false if the library
// knows neither.
func (n *NPU) ABIValue(name string) (uint64, bool) {
	text := C.CString(name)
	defer C.free(unsafe.Pointer(text))
	var value C.size_t
	ok := C.abi(n.abi, text, &value) == 0
	return uint64(value), ok
}

// FailCall makes a call that fails on the calling thread, as a library above AscendCL might, and leaves AscendCL's
// error text unread. It returns the code.
func (n *NPU) FailCall() int { return int(C.set_device(n.setDevice, -1)) }
