import { useEffect, useState } from 'preact/hooks'
import { useResource } from '../../app/resource.ts'
import { formatBytes } from '../../components/format.tsx'
import { Empty, Loaded } from '../../components/states.tsx'
import { openFile } from './file-api.ts'
import type { FilePlace } from './file-place.ts'
import { dimensionsOf, hasTooManyPixels } from './image-size.ts'
import { visibleText } from '../../app/invisible-characters.ts'

const IMAGE_BYTES_MAX = 32 * 1024 * 1024

interface ImagePreviewProps {
  readonly place: FilePlace
  readonly size: number
  /** From the content; it is that of an image without scripts. */
  readonly contentType: string
}

export function ImagePreview({ contentType, place, size }: ImagePreviewProps) {
  if (size > IMAGE_BYTES_MAX) {
    return (
      <Empty title={`The image has ${formatBytes(size)}`}>
        <p>Images up to {formatBytes(IMAGE_BYTES_MAX)} are shown. Download it, or show its bytes with "Hex".</p>
      </Empty>
    )
  }
  return <SmallImage place={place} contentType={contentType} />
}

function SmallImage({ contentType, place: { allocation, path, segments } }: Omit<ImagePreviewProps, 'size'>) {
  const bytes = useResource(
    async (signal) => (await openFile(allocation, path, signal)).arrayBuffer(),
    [allocation, path],
  )
  return (
    <Loaded resource={bytes}>
      {(data) => {
        const dimensions = dimensionsOf(data, contentType)
        if (dimensions && hasTooManyPixels(dimensions)) {
          return (
            <Empty title={`The image has ${dimensions.width} × ${dimensions.height} pixels`}>
              <p>The browser would need too much memory to show it. Download it, or show its bytes with "Hex".</p>
            </Empty>
          )
        }
        return <Picture data={data} contentType={contentType} name={segments.at(-1) ?? ''} />
      }}
    </Loaded>
  )
}

interface PictureProps {
  readonly data: ArrayBuffer
  readonly contentType: string
  readonly name: string
}

function Picture({ contentType, data, name }: PictureProps) {
  const [url, setUrl] = useState<string>()
  const [dimensions, setDimensions] = useState<string>()
  const [isBroken, setBroken] = useState(false)
  useEffect(() => {
    const made = URL.createObjectURL(new Blob([data], { type: contentType }))
    setUrl(made)
    return () => URL.revokeObjectURL(made)
  }, [data, contentType])
  if (isBroken) {
    return (
      <Empty title="The browser cannot decode the image">
        <p>The file may be incomplete. "Hex" shows its bytes.</p>
      </Empty>
    )
  }
  return (
    <div class="file-image" role="group" tabIndex={0} aria-label={`Image ${visibleText(name)}`}>
      {url !== undefined && (
        <img
          src={url}
          alt={visibleText(name)}
          onLoad={({ currentTarget: { naturalHeight, naturalWidth } }) =>
            setDimensions(`${naturalWidth} × ${naturalHeight}`)
          }
          onError={() => setBroken(true)}
        />
      )}
      <p class="muted">
        {contentType} {dimensions}
      </p>
    </div>
  )
}
