package main

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kvferry/kvferry/protocol"
)

// decodeInputMax is the size limit of a file or of standard input. It has room for many messages in hex.
const decodeInputMax = 64 << 20

func newDecodeCommand() *cobra.Command {
	var asJSON bool
	var file string
	cmd := &cobra.Command{
		Use:   "decode [HEX...]",
		Short: "Show wire bytes as readable text",
		Long: `decode shows control-plane messages field by field, as a node would read them, and
reports where and why a node would refuse a message. A message of an unknown type is
shown as generic msgpack.

Messages are given in hex, one per argument, or are read from --file or standard input.
The input is either one message as raw bytes, which may be the JSON of a controller, or
any number of messages in hex, one per line. (No message begins with a byte that could
be a hex digit, so the two forms cannot be confused.) White space within hex is ignored.`,
		Example: `  kvferry decode 82a474797065aa50726f78794e6f746966a67265715f6964a23137
  kvferry decode --file frame.bin
  tshark ... -T fields -e data | kvferry decode --json`,
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if file != "" && len(args) > 0 {
				return usagef("give hex arguments or --file, not both")
			}
			var messages [][]byte
			var err error
			switch {
			case len(args) > 0:
				messages, err = parseHexLines(strings.Join(args, "\n"))
			case file != "":
				messages, err = readMessageFile(file)
			default:
				messages, err = readMessages(cmd.InOrStdin())
			}
			if err != nil {
				return err
			}
			return printDecoded(cmd.OutOrStdout(), messages, asJSON)
		},
	}
	addJSONFlag(cmd, &asJSON)
	cmd.Flags().StringVarP(&file, "file", "f", "", "read from this file")
	return cmd
}

func readMessageFile(name string) ([][]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, usageError{err}
	}
	defer f.Close() //nolint:errcheck // Only read from.
	return readMessages(f)
}

// readMessages reads either one message of raw bytes or JSON, or one message in hex per line.
func readMessages(r io.Reader) ([][]byte, error) {
	data, err := io.ReadAll(io.LimitReader(r, decodeInputMax+1))
	if err != nil {
		return nil, err
	}
	if len(data) > decodeInputMax {
		return nil, usagef("the input is longer than %d bytes; give fewer messages at once", decodeInputMax)
	}
	if len(data) > 0 && data[0] < 0x80 && data[0] != '{' {
		return parseHexLines(string(data))
	}
	return [][]byte{data}, nil
}

func parseHexLines(text string) (messages [][]byte, err error) {
	number := 0
	for line := range strings.Lines(text) {
		number++
		digits := strings.Join(strings.Fields(line), "")
		if digits == "" {
			continue
		}
		b, err := hex.DecodeString(strings.TrimPrefix(digits, "0x"))
		if err != nil {
			return nil, usagef("message %d is not hex: %w; write two digits for each byte", number, err)
		}
		messages = append(messages, b)
	}
	if len(messages) == 0 {
		return nil, usagef("there is no message; give hex, --file, or standard input")
	}
	return messages, nil
}

// A decodedMessage is one decoded message in the form that --json prints.
type decodedMessage struct {
	Message string   `json:"message"` // the message's tag; empty if no tag was read
	Bytes   int      `json:"bytes"`
	Text    []string `json:"text"` // the lines printed without --json
	Error   *refusal `json:"error,omitempty"`
	// Msgpack is the generic MessagePack form of a message that matches no schema of kvferry.
	Msgpack []string `json:"msgpack,omitempty"`
}

// A refusal is the reason that a node would refuse a message.
type refusal struct {
	Code   string `json:"code"`
	Field  string `json:"field,omitempty"`
	Offset int    `json:"offset"`
	Text   string `json:"text"`
}

func printDecoded(w io.Writer, messages [][]byte, asJSON bool) error {
	decodings := make([]decodedMessage, len(messages))
	anyRefused := false
	for i, b := range messages {
		decodings[i] = describeMessage(b)
		anyRefused = anyRefused || decodings[i].Error != nil
	}
	if asJSON {
		if err := printJSON(w, decodings); err != nil {
			return err
		}
	} else {
		var out bytes.Buffer
		for i, d := range decodings {
			if i > 0 {
				out.WriteByte('\n')
			}
			for _, line := range d.Text {
				fmt.Fprintln(&out, line)
			}
			if d.Error != nil {
				fmt.Fprintf(&out, "refused: %s\n", d.Error.Text)
			}
			if len(d.Msgpack) > 0 {
				fmt.Fprintf(&out, "as generic msgpack:\n  %s\n", strings.Join(d.Msgpack, "\n  "))
			}
		}
		if _, err := w.Write(out.Bytes()); err != nil {
			return err
		}
	}
	if anyRefused {
		return errFinding
	}
	return nil
}

func describeMessage(b []byte) decodedMessage {
	limits := protocol.DefaultLimits()
	text, err := protocol.Describe(b, &limits)
	d := decodedMessage{Bytes: len(b), Text: strings.Split(strings.TrimRight(text, "\n"), "\n")}
	if tag, err := protocol.PeekControllerTag(b, &limits); err == nil { // Controller messages may be JSON.
		d.Message = tag.String()
	}
	var decodeErr *protocol.DecodeError
	if errors.As(err, &decodeErr) {
		d.Message = decodeErr.Message
		d.Error = &refusal{decodeErr.Code.String(), decodeErr.Field, decodeErr.Offset, decodeErr.Error()}
	} else if err != nil {
		d.Error = &refusal{Text: err.Error()}
	}
	if d.Error != nil && d.Message == "" && len(b) > 0 && b[0] != '{' {
		d.Msgpack = formatMsgpack(b)
	}
	return d
}
