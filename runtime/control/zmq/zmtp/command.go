package zmtp

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// commandMax is the longest command that is read. libzmq's own have a few dozen bytes; a READY with metadata has some
// hundred.
const commandMax = 4096

const (
	commandReady = "READY"
	commandPing  = "PING"
	commandPong  = "PONG"
	commandError = "ERROR"
)

// contextMax is the longest context of a PING, which the PONG repeats.
const contextMax = 16

// ErrRefused is wrapped by the error for a peer that refused the handshake and stated a reason.
var ErrRefused = errors.New("the peer refused the connection")

// maxReason is the longest reason, in bytes.
const maxReason = 255

// Refuse completes the greeting with a peer and tells it why the connection ends. The reason has at most maxReason bytes.
func Refuse(conn io.ReadWriter, reason string) {
	if _, err := conn.Write(AppendGreeting(nil)); err != nil {
		return
	}
	if _, err := ReadGreeting(conn); err == nil {
		_, _ = conn.Write(appendCommand(nil, commandError, []byte{byte(len(reason))}, []byte(reason)))
	}
}

// command holds the name of a command and the data after the name.
type command struct {
	name string
	data []byte
}

func readCommand(r io.Reader, size uint64) (command, error) {
	if size == 0 || size > commandMax {
		return command{}, protocolError("a command of %d bytes", size)
	}
	body := make([]byte, size)
	if _, err := io.ReadFull(r, body); err != nil {
		return command{}, unexpectedEnd(err, "in a command")
	}
	name := int(body[0])
	if name == 0 || name > len(body)-1 {
		return command{}, protocolError("a command whose name has %d of %d bytes", name, len(body)-1)
	}
	return command{name: string(body[1 : 1+name]), data: body[1+name:]}, nil
}

func appendCommand(b []byte, name string, data ...[]byte) []byte {
	size := 1 + len(name)
	for _, d := range data {
		size += len(d)
	}
	b = append(appendHead(b, flagCommand, size), byte(len(name)))
	b = append(b, name...)
	for _, d := range data {
		b = append(b, d...)
	}
	return b
}

// AppendReady appends our half of the handshake: a socket of this type, without a name.
func AppendReady(b []byte, socketType string) []byte {
	return appendCommand(b, commandReady, appendProperty("Socket-Type", socketType), appendProperty("Identity", ""))
}

// AppendPing appends a PING, which asks the peer for a PONG. A positive ttl, in tenths of a second, lets the peer
// consider the connection dead after that much silence of ours; zero promises nothing.
func AppendPing(b []byte, deciseconds uint16) []byte {
	return appendCommand(b, commandPing, binary.BigEndian.AppendUint16(nil, deciseconds))
}

func appendProperty(name, value string) []byte {
	b := append([]byte{byte(len(name))}, name...)
	b = binary.BigEndian.AppendUint32(b, uint32(len(value)))
	return append(b, value...)
}

// ReadReady reads a peer's half of the handshake and returns the type of the peer's socket.
func ReadReady(r io.Reader) (socketType string, err error) {
	f, err := readFrame(r, new([9]byte))
	if err != nil {
		return "", unexpectedEnd(err, "in its handshake")
	}
	if !f.command {
		return "", protocolError("a message before the handshake")
	}
	c, err := readCommand(r, f.size)
	switch {
	case err != nil:
		return "", err
	case c.name == commandError && len(c.data) > 0:
		return "", fmt.Errorf("%w: %q", ErrRefused, c.data[1:min(len(c.data), 1+maxReason)])
	case c.name != commandReady:
		return "", protocolError("%q instead of READY", c.name)
	}
	for b := c.data; len(b) > 0; {
		name, value, rest, ok := cutProperty(b)
		if !ok {
			return "", protocolError("the properties of its READY are cut short")
		}
		if string(name) == "Socket-Type" {
			socketType = string(value)
		}
		b = rest
	}
	return socketType, nil
}

func cutProperty(b []byte) (name, value, rest []byte, ok bool) {
	n := int(b[0])
	if b = b[1:]; n == 0 || len(b) < n+4 {
		return nil, nil, nil, false
	}
	name, b = b[:n], b[n:]
	size := binary.BigEndian.Uint32(b)
	if b = b[4:]; uint64(size) > uint64(len(b)) {
		return nil, nil, nil, false
	}
	return name, b[:size], b[size:], true
}
