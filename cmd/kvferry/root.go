package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/kvferry/kvferry/cmd/kvferry/internal/plain"
)

// The exit codes of every command.
const (
	exitOK      = 0
	exitFinding = 1
	exitUsage   = 2
)

// servesAnnotation marks a command that runs until a signal ends it. For such a command, the signal means success.
const servesAnnotation = "serves"

// markServing adds servesAnnotation to a command.
func markServing(cmd *cobra.Command) *cobra.Command {
	cmd.Annotations = map[string]string{servesAnnotation: "until a signal"}
	return cmd
}

// An interruption is the signal that ended a command.
type interruption struct{ signal syscall.Signal }

func (i interruption) Error() string { return "interrupted by " + i.signalName() }

func (i interruption) signalName() string {
	if i.signal == syscall.SIGINT {
		return "SIGINT"
	}
	if i.signal == syscall.SIGTERM {
		return "SIGTERM"
	}
	return i.signal.String()
}

// exitCode returns the exit code that a shell reports for a process that the signal killed.
func (i interruption) exitCode() int { return 128 + int(i.signal) }

// interruptedBy returns the signal that ended ctx, and reports whether ctx has ended. A context that ended without a
// signal, as in tests, counts as interrupted from the keyboard.
func interruptedBy(ctx context.Context) (interruption, bool) {
	if ctx.Err() == nil {
		return interruption{}, false
	}
	i := interruption{syscall.SIGINT}
	errors.As(context.Cause(ctx), &i)
	return i, true
}

// errFinding ends a command that has already printed its findings.
var errFinding = errors.New("found something wrong")

// A usageError is the error of a wrong command line.
type usageError struct{ err error }

func (e usageError) Error() string { return e.err.Error() }
func (e usageError) Unwrap() error { return e.err }

func usagef(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

// run runs one command line and returns its exit code.
func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	root := newRootCommand()
	root.SetArgs(args)
	root.SetIn(stdin)
	root.SetOut(stdout)
	root.SetErr(stderr)
	cmd, err := root.ExecuteContextC(ctx)
	var usage usageError
	interrupt, interrupted := interruptedBy(ctx)
	switch {
	case interrupted && cmd.Annotations[servesAnnotation] == "" && (err == nil || errors.Is(err, context.Canceled)):
		fmt.Fprintf(stderr, "%s: %v\n", cmd.CommandPath(), interrupt)
		return interrupt.exitCode()
	case err == nil:
		return exitOK
	case errors.Is(err, errFinding):
		return exitFinding
	case errors.As(err, &usage):
		fmt.Fprintf(stderr, "%s: %s\nsee %s --help\n", cmd.CommandPath(), plain.Text(err.Error()), cmd.CommandPath())
		return exitUsage
	default:
		fmt.Fprintf(stderr, "%s: %s\n", cmd.CommandPath(), plain.Text(err.Error()))
		return exitFinding
	}
}

func newRootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:   "kvferry",
		Short: "Move KV cache between the nodes of a disaggregated LLM serving system",
		Long: `kvferry moves KV cache between the nodes of a disaggregated LLM serving system: prefill
nodes send chunks to decode nodes, and nodes can read chunks from each other's caches.

kvferry reads LMCache's configuration and speaks LMCache's control messages. KV data is only
moved between kvferry nodes. The protocol is a pure state machine, so the same code runs on
real sockets and memory and in a simulator that injects faults.

Exit codes: 0 success; 1 a problem was found, or the command failed; 2 wrong usage; 130 or 143
interrupted by SIGINT or SIGTERM before the work was done.`,
		Example: `  kvferry config check receiver.yaml sender.yaml
  kvferry layout --model Qwen3-8B/config.json --tp 2
  kvferry --version
  kvferry decode 82a474797065aa50726f78794e6f746966a67265715f6964a23137`,
		Version:       currentVersion().text(),
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	root.SetVersionTemplate("{{.Version}}")
	root.AddCommand(
		newLayoutCommand(),
		newCertsCommand(),
		newStatusCommand(),
		newTenantCommand(),
		newConfigCommand(),
		newDecodeCommand(),
		newDemoCommand(),
		markServing(newDemoProxyCommand()),
		markServing(newDirectoryCommand()),
		newDoctorCommand(),
		markServing(newNodeCommand()),
		markServing(newAgentCommand()),
		markServing(newProxyCommand()),
		newSimCommand(),
		newVersionCommand(),
	)
	reportUsageErrors(root)
	return root
}

// reportUsageErrors makes cmd and all subcommands of cmd report wrong calls as usage errors: wrong flags, wrong
// arguments, and groups that are called without a subcommand.
func reportUsageErrors(cmd *cobra.Command) {
	cmd.SuggestionsMinimumDistance = 2
	cmd.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usageError{err} })
	if !cmd.Runnable() {
		cmd.Args = cobra.ArbitraryArgs
		cmd.RunE = runGroup
	} else {
		checkArgs := cmd.Args
		if checkArgs == nil {
			checkArgs = rejectArguments
		}
		cmd.Args = func(cmd *cobra.Command, args []string) error {
			if err := checkArgs(cmd, args); err != nil {
				return usageError{err}
			}
			return nil
		}
	}
	for _, sub := range cmd.Commands() {
		reportUsageErrors(sub)
	}
}

func rejectArguments(_ *cobra.Command, args []string) error {
	if len(args) > 0 {
		return fmt.Errorf("unexpected argument %q; the command takes no arguments", args[0])
	}
	return nil
}

// runGroup runs when a group of commands is called without a subcommand.
func runGroup(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		if err := cmd.Help(); err != nil {
			return err
		}
		return usagef("a subcommand is missing")
	}
	if suggestions := cmd.SuggestionsFor(args[0]); len(suggestions) > 0 {
		return usagef("unknown command %q, did you mean %s?", args[0], strings.Join(suggestions, " or "))
	}
	return usagef("unknown command %q; %s --help lists the commands", args[0], cmd.CommandPath())
}

// addJSONFlag adds the flag --json to cmd. With the flag, cmd prints one indented JSON value on standard output.
func addJSONFlag(cmd *cobra.Command, asJSON *bool) {
	cmd.Flags().BoolVar(asJSON, "json", false, "print JSON instead of text")
}

func printJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return e.Encode(v)
}
