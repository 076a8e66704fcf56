// Package replace writes a file to a path that a user chose, and never destroys a file that another program wrote.
package replace

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// headMax is the number of bytes at the start of a file that are passed to the function that recognises the file.
const headMax = 1 << 20

// File writes text to path. An existing file is replaced, completely or not at all, if isOurs recognises the beginning
// of the file as the output of an earlier call. File does not change any other existing file or folder, and returns an
// error that describes the obstacle. If path is a symbolic link, File keeps the link and writes the target of the link.
// File writes directly to a device or a pipe, such as /dev/stdout. The label names the kind of file in errors.
func File(path, label string, text []byte, isOurs func(head []byte) bool) error {
	target, err := filepath.EvalSymlinks(path)
	if errors.Is(err, fs.ErrNotExist) {
		return createFile(path, text)
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
		return fmt.Errorf("%s is a directory; name a file for %s", path, label)
	case info.Mode()&(fs.ModeNamedPipe|fs.ModeCharDevice) != 0:
		return writeFile(target, os.O_WRONLY, 0, text)
	case !info.Mode().IsRegular():
		return fmt.Errorf("%s is not a regular file; name another file for %s", path, label)
	}
	head, err := readHead(target)
	if err != nil {
		return err
	}
	if len(head) > 0 && !isOurs(head) {
		return fmt.Errorf("%s exists and was not written by kvferry; name another file for %s, or move the existing file away",
			path, label)
	}
	return replaceFile(target, info.Mode().Perm(), text)
}

// createFile creates a new file. If another program has created the file in the meantime, createFile leaves the file
// unchanged and returns an error.
func createFile(path string, text []byte) error {
	err := writeFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644, text)
	if err != nil && !errors.Is(err, fs.ErrExist) {
		var failed *writeError
		if errors.As(err, &failed) {
			err = errors.Join(failed.error, os.Remove(path)) // This call created the file.
		}
	}
	return err
}

// A writeError reports that the file was opened but not written completely.
type writeError struct{ error }

func (e *writeError) Unwrap() error { return e.error }

func writeFile(path string, flags int, mode fs.FileMode, text []byte) error {
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

func readHead(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	head, err := io.ReadAll(io.LimitReader(f, headMax))
	return head, errors.Join(err, f.Close())
}

// replaceFile replaces the content of an existing file atomically: it writes a new file and renames the new file.
func replaceFile(path string, mode fs.FileMode, text []byte) error {
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
