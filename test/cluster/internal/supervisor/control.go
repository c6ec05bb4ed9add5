package supervisor

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"time"
)

// actionLimit bounds one action asked for over the socket; the longest is the
// orderly stop of the API server.
const actionLimit = 60 * time.Second

// Serve answers on a Unix socket until ctx ends. Whoever may open the socket
// (mode 0600) may control the components. orders are answered too: "POST
// /orders/NAME/ARGUMENT" calls the function of that name.
func (s *Supervisor) Serve(ctx context.Context, socket string, orders map[string]func(argument string) error) error {
	l, err := listen(socket)
	if err != nil {
		return fmt.Errorf("listen on control socket: %w", err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /components", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if err := json.NewEncoder(w).Encode(s.Statuses()); err != nil {
			s.log.Warn("answer", "error", err)
		}
	})
	mux.HandleFunc("POST /components/{name}/{action}", func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), actionLimit)
		defer cancel()
		switch err := s.Do(ctx, r.PathValue("name"), Action(r.PathValue("action"))); {
		case errors.Is(err, ErrUnknown):
			http.Error(w, err.Error(), http.StatusNotFound)
		case err != nil:
			http.Error(w, err.Error(), http.StatusConflict)
		}
	})
	mux.HandleFunc("POST /orders/{name}/{argument}", func(w http.ResponseWriter, r *http.Request) {
		order, ok := orders[r.PathValue("name")]
		if !ok {
			http.Error(w, "no such order here", http.StatusNotFound)
			return
		}
		if err := order(r.PathValue("argument")); err != nil {
			http.Error(w, err.Error(), http.StatusConflict)
		}
	})
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	go func() {
		<-ctx.Done()
		_ = server.Close() // clients see the end of their connection
	}()
	if err := server.Serve(l); err != nil && !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve control socket: %w", err)
	}
	return nil
}

// listen binds the socket through a descriptor of its folder, because a
// socket's path may have only 107 characters and a state folder's may be
// longer.
func listen(socket string) (net.Listener, error) {
	dir, err := os.Open(filepath.Dir(socket))
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	if err := os.Remove(socket); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: through(dir, socket), Net: "unix"})
	if err != nil {
		return nil, err
	}
	// The name that the listener would unlink goes through a descriptor that
	// is closed by then; state.RemoveRun removes the socket.
	l.SetUnlinkOnClose(false)
	if err := os.Chmod(socket, 0o600); err != nil {
		l.Close()
		return nil, err
	}
	return l, nil
}

func through(dir *os.File, socket string) string {
	return fmt.Sprintf("/proc/self/fd/%d/%s", dir.Fd(), filepath.Base(socket))
}

// Client talks to a supervisor's socket.
type Client struct{ http *http.Client }

// NewClient returns a client; it connects at each call.
func NewClient(socket string) *Client {
	return &Client{http: &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			dir, err := os.Open(filepath.Dir(socket))
			if err != nil {
				return nil, err
			}
			defer dir.Close()
			return (&net.Dialer{}).DialContext(ctx, "unix", through(dir, socket))
		},
	}}}
}

// Statuses of all components.
func (c *Client) Statuses(ctx context.Context) ([]Status, error) {
	raw, err := c.call(ctx, http.MethodGet, "components")
	if err != nil {
		return nil, fmt.Errorf("ask supervisor: %w", err)
	}
	var all []Status
	if err := json.Unmarshal(raw, &all); err != nil {
		return nil, fmt.Errorf("parse supervisor's answer: %w", err)
	}
	return all, nil
}

// Do carries out an action and returns when it is done.
func (c *Client) Do(ctx context.Context, name string, a Action) error {
	_, err := c.call(ctx, http.MethodPost, "components/"+name+"/"+string(a))
	return err
}

// Order gives an order and returns when it was carried out.
func (c *Client) Order(ctx context.Context, name, argument string) error {
	_, err := c.call(ctx, http.MethodPost, "orders/"+name+"/"+argument)
	return err
}

func (c *Client) call(ctx context.Context, method, path string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, actionLimit+5*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, "http://supervisor/"+path, nil)
	if err != nil {
		return nil, err
	}
	res, err := c.http.Do(req)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	raw, err := io.ReadAll(io.LimitReader(res.Body, 1<<20))
	if err != nil {
		return nil, err
	}
	if res.StatusCode >= 300 {
		return nil, errors.New(string(bytes.TrimSpace(raw)))
	}
	return raw, nil
}
