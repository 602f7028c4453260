"""Drop-in datasets: the constructors of GG-CNN's and GR-ConvNet's data sets, so that their scripts stay as they are.

`examples/ggcnn.patch` and `examples/grconvnet.patch` put them in the place of both projects' `get_dataset`.
Constructors: dougsm/ggcnn and skumra/robotic-grasping, utils/data/cornell_data.py, jacquard_data.py and grasp_data.py.
"""

from os import PathLike

from packer.grasp.dataset import GraspDataset
from packer.grasp.sample_splits import SliceSplit


class GGCNNDataset(GraspDataset):
    """Items of GG-CNN from a pack of Cornell or Jacquard; see GraspDataset."""

    def __init__(
        self,
        file_path: str | PathLike[str],
        start: float = 0.0,
        end: float = 1.0,
        ds_rotate: float = 0.0,
        *,
        output_size: int = 300,
        include_depth: bool | int = True,
        include_rgb: bool | int = False,
        random_rotate: bool = False,
        random_zoom: bool = False,
    ) -> None:
        """file_path: the pack. start, end, ds_rotate: shares of the list of samples, see packer.grasp.Cut.

        Raises as GraspDataset does.
        """
        super().__init__(
            file_path,
            output_size,
            include_depth=bool(include_depth),
            include_rgb=bool(include_rgb),
            random_rotate=random_rotate,
            random_zoom=random_zoom,
            style="ggcnn",
            split=SliceSplit(start, end, rotate=ds_rotate),
        )


class GRConvNetDataset(GraspDataset):
    """Items of GR-ConvNet from a pack of Cornell or Jacquard; see GraspDataset. Its scripts split by samplers."""

    def __init__(
        self,
        file_path: str | PathLike[str],
        ds_rotate: float = 0.0,
        *,
        output_size: int = 224,
        include_depth: bool | int = True,
        include_rgb: bool | int = False,
        random_rotate: bool = False,
        random_zoom: bool = False,
    ) -> None:
        """file_path: the pack. ds_rotate: share of the samples that goes from the list's start to its end first.

        Raises as GraspDataset does.
        """
        super().__init__(
            file_path,
            output_size,
            include_depth=bool(include_depth),
            include_rgb=bool(include_rgb),
            random_rotate=random_rotate,
            random_zoom=random_zoom,
            style="grconvnet",
            split=SliceSplit(0.0, 1.0, rotate=ds_rotate),
        )
