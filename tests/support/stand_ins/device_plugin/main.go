// Command device_plugin stands in for a device plugin in tests: it speaks the
// kubelet's own protocol (registration by the plugin watcher, and v1beta1 of the
// device plugin API) and has devices that exist nowhere.
//
// As NVIDIA's plugin it tells a container its GPUs by NVIDIA_VISIBLE_DEVICES, and
// gives it the device files of the node at their own paths.
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"google.golang.org/grpc"
	plugin "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
)

type devices struct {
	plugin.UnimplementedDevicePluginServer
	registration.UnimplementedRegistrationServer
	resource, prefix, path, endpoint string
	count                            int
	done                             <-chan struct{}
}

// GetInfo tells the kubelet what registers.
func (d *devices) GetInfo(context.Context, *registration.InfoRequest) (*registration.PluginInfo, error) {
	return &registration.PluginInfo{
		Type: registration.DevicePlugin, Name: d.resource, Endpoint: d.endpoint, SupportedVersions: []string{plugin.Version},
	}, nil
}

// NotifyRegistrationStatus says whether the kubelet took it.
func (d *devices) NotifyRegistrationStatus(_ context.Context, status *registration.RegistrationStatus) (*registration.RegistrationStatusResponse, error) {
	log.Printf("registered=%t %s", status.PluginRegistered, status.Error)
	return &registration.RegistrationStatusResponse{}, nil
}

// GetDevicePluginOptions has nothing to ask for.
func (d *devices) GetDevicePluginOptions(context.Context, *plugin.Empty) (*plugin.DevicePluginOptions, error) {
	return &plugin.DevicePluginOptions{}, nil
}

// ListAndWatch lists the devices, which never change.
func (d *devices) ListAndWatch(_ *plugin.Empty, stream grpc.ServerStreamingServer[plugin.ListAndWatchResponse]) error {
	list := &plugin.ListAndWatchResponse{}
	for number := range d.count {
		list.Devices = append(list.Devices, &plugin.Device{ID: fmt.Sprintf("%s%d", d.prefix, number), Health: plugin.Healthy})
	}
	if err := stream.Send(list); err != nil {
		return err
	}
	select {
	case <-d.done:
	case <-stream.Context().Done():
	}
	return nil
}

// Allocate gives containers the devices that the kubelet chose.
func (d *devices) Allocate(_ context.Context, request *plugin.AllocateRequest) (*plugin.AllocateResponse, error) {
	answer := &plugin.AllocateResponse{}
	for _, one := range request.ContainerRequests {
		given := &plugin.ContainerAllocateResponse{}
		for _, id := range one.DevicesIds {
			place := d.path
			if d.prefix == "GPU-" {
				place += strings.TrimPrefix(id, d.prefix)
			}
			given.Devices = append(given.Devices, &plugin.DeviceSpec{ContainerPath: place, HostPath: place, Permissions: "rw"})
		}
		if d.prefix == "GPU-" {
			given.Envs = map[string]string{"NVIDIA_VISIBLE_DEVICES": strings.Join(one.DevicesIds, ",")}
		}
		answer.ContainerResponses = append(answer.ContainerResponses, given)
	}
	return answer, nil
}

// GetPreferredAllocation is not asked for.
func (d *devices) GetPreferredAllocation(context.Context, *plugin.PreferredAllocationRequest) (*plugin.PreferredAllocationResponse, error) {
	return &plugin.PreferredAllocationResponse{}, nil
}

// PreStartContainer is not asked for.
func (d *devices) PreStartContainer(context.Context, *plugin.PreStartContainerRequest) (*plugin.PreStartContainerResponse, error) {
	return &plugin.PreStartContainerResponse{}, nil
}

func main() {
	registry := flag.String("registry", "", "the kubelet's directory of plugins")
	made := &devices{}
	flag.StringVar(&made.resource, "resource", "", "name of the resource")
	flag.StringVar(&made.prefix, "prefix", "GPU-", "what ids begin with; GPU- makes GPUs")
	flag.StringVar(&made.path, "path", "/dev/cloister-gpu", "where node and containers see a device; GPUs with their number behind it")
	flag.IntVar(&made.count, "count", 8, "how many there are")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	made.done = ctx.Done()
	made.endpoint = filepath.Join(*registry, strings.ReplaceAll(made.resource, "/", "-")+".sock")
	_ = os.Remove(made.endpoint)
	listener, err := net.Listen("unix", made.endpoint)
	if err != nil {
		log.Fatal(err)
	}
	server := grpc.NewServer()
	plugin.RegisterDevicePluginServer(server, made)
	registration.RegisterRegistrationServer(server, made)
	go func() {
		<-ctx.Done()
		server.Stop()
	}()
	if err := server.Serve(listener); err != nil {
		log.Fatal(err)
	}
}
