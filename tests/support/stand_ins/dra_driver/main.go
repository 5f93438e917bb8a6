// Command dra_driver stands in for a driver of Dynamic Resource Allocation in
// tests: it registers with the real kubelet, publishes a ResourceSlice of GPUs
// that exist nowhere, and lets containerd give containers their device files by
// CDI (Container Device Interface).
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"log"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	resource "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"
	"k8s.io/dynamic-resource-allocation/resourceslice"
)

type driver struct {
	name, node, cdi, path string
}

// id names a device for CDI: one of a claim, as a name must not be used again.
func id(claim types.UID, device string) string {
	return fmt.Sprintf("%s-%s", claim, device)
}

func (d *driver) kind() string { return d.name + "/gpu" }

func (d *driver) file(claim types.UID) string {
	return filepath.Join(d.cdi, d.name+"-"+string(claim)+".json")
}

// PrepareResourceClaims describes the devices of claims for the container runtime.
func (d *driver) PrepareResourceClaims(_ context.Context, claims []*resource.ResourceClaim) (map[types.UID]kubeletplugin.PrepareResult, error) {
	results := map[types.UID]kubeletplugin.PrepareResult{}
	for _, claim := range claims {
		devices, err := d.prepare(claim)
		log.Printf("prepare %s: %d devices, %v", claim.Name, len(devices), err)
		results[claim.UID] = kubeletplugin.PrepareResult{Devices: devices, Err: err}
	}
	return results, nil
}

func (d *driver) prepare(claim *resource.ResourceClaim) ([]kubeletplugin.Device, error) {
	type object = map[string]any
	var described []object
	var devices []kubeletplugin.Device
	for _, one := range claim.Status.Allocation.Devices.Results {
		if one.Driver != d.name {
			continue
		}
		place := d.path + one.Device[len("gpu-"):]
		described = append(described, object{
			"name":           id(claim.UID, one.Device),
			"containerEdits": object{"deviceNodes": []object{{"path": place}}},
		})
		devices = append(devices, kubeletplugin.Device{
			Requests: []string{one.Request}, PoolName: one.Pool, DeviceName: one.Device,
			CDIDeviceIDs: []string{d.kind() + "=" + id(claim.UID, one.Device)},
		})
	}
	text, err := json.Marshal(object{"cdiVersion": "0.6.0", "kind": d.kind(), "devices": described})
	if err != nil {
		return nil, err
	}
	return devices, os.WriteFile(d.file(claim.UID), text, 0o644)
}

// UnprepareResourceClaims removes what PrepareResourceClaims wrote.
func (d *driver) UnprepareResourceClaims(_ context.Context, claims []kubeletplugin.NamespacedObject) (map[types.UID]error, error) {
	results := map[types.UID]error{}
	for _, claim := range claims {
		log.Printf("unprepare %s", claim.Name)
		err := os.Remove(d.file(claim.UID))
		if os.IsNotExist(err) {
			err = nil
		}
		results[claim.UID] = err
	}
	return results, nil
}

// HandleError logs what happens in the background.
func (d *driver) HandleError(_ context.Context, err error, message string) {
	log.Printf("%s: %v", message, err)
}

func main() {
	made := &driver{}
	count := flag.Int("count", 4, "how many GPUs there are")
	kubelet := flag.String("kubelet", "", "the kubelet's directory")
	kubeconfig := flag.String("kubeconfig", "", "how the API server is reached")
	flag.StringVar(&made.name, "name", "", "name of the driver")
	flag.StringVar(&made.node, "node", "", "name of the node")
	flag.StringVar(&made.cdi, "cdi", "/var/run/cdi", "directory that containerd reads")
	flag.StringVar(&made.path, "path", "/dev/cloister-dra", "what the path of a device begins with; its number follows")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	if err := made.run(ctx, *kubelet, *kubeconfig, *count); err != nil {
		log.Fatal(err)
	}
}

func (d *driver) run(ctx context.Context, kubelet, kubeconfig string, count int) error {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	data := filepath.Join(kubelet, "plugins", d.name)
	for _, directory := range []string{data, d.cdi} {
		if err := os.MkdirAll(directory, 0o755); err != nil {
			return err
		}
	}
	helper, err := kubeletplugin.Start(ctx, d,
		kubeletplugin.DriverName(d.name), kubeletplugin.NodeName(d.node), kubeletplugin.KubeClient(client),
		kubeletplugin.RegistrarDirectoryPath(filepath.Join(kubelet, "plugins_registry")),
		kubeletplugin.PluginDataDirectoryPath(data))
	if err != nil {
		return err
	}
	defer helper.Stop()
	var devices []resource.Device
	for number := range count {
		devices = append(devices, resource.Device{Name: fmt.Sprintf("gpu-%d", number)})
	}
	pool := resourceslice.Pool{Slices: []resourceslice.Slice{{Devices: devices}}}
	resources := resourceslice.DriverResources{Pools: map[string]resourceslice.Pool{d.node: pool}}
	if err := helper.PublishResources(ctx, resources); err != nil {
		return err
	}
	<-ctx.Done()
	return nil
}
