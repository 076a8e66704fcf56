// Package replace writes a file at a path that a user named, and never destroys a file that something else wrote there.
package replace

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// headMax is how much of a file is shown to the function that recognises it.
const headMax = 1 << 20

// File writes text to path. A file that is already there is replaced, whole or not at all, if ours recognises its
// beginning as something that an earlier call wrote. Everything else that is there stays as it is, and the error says
// what it is. A symbolic link stays, and the file that it names is written. A device or a pipe, such as /dev/stdout, is
// written to.
func File(path, what string, text []byte, ours func(head []byte) bool) error {
	target, err := filepath.EvalSymlinks(path)
	if errors.Is(err, fs.ErrNotExist) {
		return create(path, text)
	}
	if err != nil {
		return err
	}
	info, err := os.Lstat(target)
	if err != nil {
		return err
	}
	switch {
	case info.IsDir():
		return fmt.Errorf("%s is a directory; name a file for %s", path, what)
	case info.Mode()&(fs.ModeNamedPipe|fs.ModeCharDevice) != 0:
		return write(target, os.O_WRONLY, 0, text)
	case !info.Mode().IsRegular():
		return fmt.Errorf("%s is no regular file; name another one for %s", path, what)
	}
	head, err := headOf(target)
	if err != nil {
		return err
	}
	if len(head) > 0 && !ours(head) {
		return fmt.Errorf("%s is there, and kvferry did not write it; name another file for %s, or move that one away",
			path, what)
	}
	return exchange(target, info.Mode().Perm(), text)
}

// create makes a file that is not there. If something has come there meanwhile, that stays.
func create(path string, text []byte) error {
	err := write(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644, text)
	if err != nil && !errors.Is(err, fs.ErrExist) {
		var failed *writeError
		if errors.As(err, &failed) {
			err = errors.Join(failed.error, os.Remove(path)) // This call made it.
		}
	}
	return err
}

// A writeError says that the file was opened, and not written whole.
type writeError struct{ error }

func (e *writeError) Unwrap() error { return e.error }

func write(path string, flags int, mode fs.FileMode, text []byte) error {
	f, err := os.OpenFile(path, flags, mode)
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	if err = errors.Join(err, f.Close()); err != nil {
		return &writeError{err}
	}
	return nil
}

func headOf(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	head, err := io.ReadAll(io.LimitReader(f, headMax))
	return head, errors.Join(err, f.Close())
}

// exchange puts text in the place of a file that is ours.
func exchange(path string, mode fs.FileMode, text []byte) error {
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".new-")
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	if err = errors.Join(err, f.Chmod(mode), f.Close()); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return nil
}
