package softnpu

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
)

// ErrNoTools says that gcc or make is not installed; tests are skipped then.
var ErrNoTools = errors.New("the software NPU cannot be built: install gcc and make")

// Variant says which library to build. The zero value is the ordinary library.
type Variant struct {
	Sanitize string   // value of gcc's -fsanitize, "" for none
	Hide     []string // symbols to leave out, as an older CANN does
}

// BuildLibrary builds the library if the last build is out of date, and returns the path. Processes and packages that
// build at the same time wait for each other. The current directory must be inside this module; the result is in .cache
// of the module.
func (v Variant) BuildLibrary() (string, error) { return v.buildTarget("library", "libcannemu.so") }

func (v Variant) buildTarget(target, file string) (string, error) {
	for _, tool := range []string{"gcc", "make"} {
		if _, err := exec.LookPath(tool); err != nil {
			return "", fmt.Errorf("%w: %w", ErrNoTools, err)
		}
	}
	root, err := moduleRoot()
	if err != nil {
		return "", err
	}
	source := filepath.Join(root, "runtime", "softnpu")
	if err := readSources(source); err != nil {
		return "", err
	}
	out := filepath.Join(root, ".cache", "softnpu", v.dirName())
	if err := os.MkdirAll(out, 0o755); err != nil {
		return "", err
	}
	unlock, err := lockFile(filepath.Join(out, "lock"))
	if err != nil {
		return "", err
	}
	defer unlock()
	build := exec.Command("make", "-j2", "-f", filepath.Join(source, "softnpu.mk"), target, "OUT="+out,
		"FLAGS="+v.compilerFlags(), "HIDE="+strings.Join(v.Hide, " "))
	// this make must not take part in the job server of a make that runs the tests
	build.Env = append(os.Environ(), "MAKEFLAGS=", "MAKELEVEL=")
	if text, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("building the software NPU: %w\n%s", err, text)
	}
	return filepath.Join(out, file), nil
}

func (v Variant) dirName() string {
	parts := []string{"plain"}
	if v.Sanitize != "" {
		parts[0] = strings.ReplaceAll(v.Sanitize, ",", "-")
	}
	return strings.Join(append(parts, v.Hide...), "-")
}

func (v Variant) compilerFlags() string {
	if v.Sanitize == "" {
		return ""
	}
	return "-O1 -fsanitize=" + v.Sanitize + " -fno-sanitize-recover=all"
}

func moduleRoot() (string, error) {
	at, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for dir := at; ; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir, nil
		}
		if dir == filepath.Dir(dir) {
			return "", fmt.Errorf("no go.mod above %s: the software NPU is built from kvferry's source", at)
		}
	}
}

// readSources reads every file that the library is made of. The go command records which files a test reads, and so
// does not reuse an old result after a change in C.
func readSources(dir string) error {
	for _, pattern := range []string{"src/*", "check/*", "softnpu.mk"} {
		files, err := filepath.Glob(filepath.Join(dir, pattern))
		if err != nil {
			return err
		}
		for _, file := range files {
			if _, err := os.ReadFile(file); err != nil {
				return err
			}
		}
	}
	return nil
}

func lockFile(path string) (unlock func(), err error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	for {
		if err = syscall.Flock(int(file.Fd()), syscall.LOCK_EX); err != syscall.EINTR {
			break
		}
	}
	if err != nil {
		file.Close()
		return nil, fmt.Errorf("wait for a concurrent build: %w", err)
	}
	return func() { file.Close() }, nil
}
